"""Program files: MSCCL XML in its dialects."""
