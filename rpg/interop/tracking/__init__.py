"""Sends the numbers in run folders to TensorBoard, Weights & Biases and MLflow.

A separate process follows the folders (`python -m rpg.interop.tracking SWEEP_DIR`), so that a slow,
full or unreachable tracker never affects a training; what could not be sent is sent later. `<data
folder>/tracking/state/<sweep>/<run>.json` records what each tracker has received.
"""
