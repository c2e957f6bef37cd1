"""Reference engine on simpy: the specification of ``ideal`` fidelity."""
