"""Numbers of runs sent to TensorBoard, Weights & Biases and MLflow, from what the run folders hold.

A process of its own follows the folders (`python -m rpg.tracking SWEEP_DIR`), so a tracker that is slow, full or gone never
touches a training; what it missed is sent the next time. How far each tracker is lies in
`<data folder>/tracking/state/<sweep>/<run>.json`.
"""
