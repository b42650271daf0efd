"""Linformer: attention to a fixed number of weighted sums of all keys and values."""

from .fused import linformer_attention, linformer_slots, linformer_weights

__all__ = ["linformer_attention", "linformer_slots", "linformer_weights"]
