"""Measurements: nccl-tests tables of any era, their JSON and CSV, and NCCL_DEBUG logs."""
