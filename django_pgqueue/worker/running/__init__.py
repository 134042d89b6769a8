"""What runs a job: two pools with one face, which `pool.py` names."""
