"""Files that are written once."""

import os
import tempfile
from pathlib import Path


def write_once(path: Path, content: bytes) -> bool:
    """Write the file whole, or return False if it is there already; of two writers one wins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=".")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.chmod(draft, 0o644)
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        os.unlink(draft)
    return True
