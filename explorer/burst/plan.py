"""Training plan: how many GPUs every layer of a network runs on, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LayerPlan:
    """One layer of a plan.

    Parameters
    ----------
    name, op
        The profile's.
    prev
        Indices of the layers it reads, in the plan's order.
    gpus, first_gpu
        Runs on GPUs ``first_gpu … first_gpu + gpus - 1``, an equal share of the batch on each.
    forward_us, backward_us
        Compute time per direction.
    sync_us
        All-reduce of its gradient: its share of the burst's bytes, and the burst's latency where
        it starts one.
    reshard_us
        All transfers into it, and of gradients back.
    start_us
        Start of its resharding when every layer's times are laid out in one go (see
        docs/training-plans.md); for pictures.
    grad_bytes
        Bytes of its gradient.
    memory_bytes
        On each of its GPUs.
    """

    name: str
    op: str
    prev: tuple[int, ...]
    gpus: int
    first_gpu: int
    forward_us: float
    backward_us: float
    sync_us: float
    reshard_us: float
    start_us: float
    grad_bytes: int
    memory_bytes: float

    @property
    def compute_us(self) -> float:
        """Both directions."""
        return self.forward_us + self.backward_us

    @property
    def gpu_us(self) -> float:
        """GPU time: GPUs x (compute + sync + reshard)."""
        return self.gpus * (self.compute_us + self.sync_us + self.reshard_us)


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """A plan of one training iteration.

    Parameters
    ----------
    model
        Name of the network.
    mode
        ``burst`` or ``dp`` (data parallel).
    batch
        Global batch.
    gpus
        GPUs of the machine.
    limit
        Amplification limit of every layer; None for none.
    price
        lambda of the priced mode; 0 for time alone.
    network
        Where the times of communication come from.
    layers
        In topological order.
    step_us
        Rest of the iteration (loss, optimiser), on every GPU of the plan.
    step_known
        Whether the profile says it; unknown counts as 0.
    iteration_us
        Time of an iteration, concurrent branches side by side, ``step_us`` included.
    one_gpu_us
        Time of an iteration on one GPU without communication, ``step_us`` included.
    notes
        What was assumed, interpolated or left out.
    """

    model: str
    mode: str
    batch: int
    gpus: int
    limit: float | None
    price: float
    network: str
    layers: tuple[LayerPlan, ...]
    step_us: float
    step_known: bool
    iteration_us: float
    one_gpu_us: float
    notes: tuple[str, ...] = ()

    @property
    def gpus_max(self) -> int:
        """GPUs it uses at all: 1 + the highest GPU."""
        return max(layer.first_gpu + layer.gpus for layer in self.layers)

    @property
    def gpu_us(self) -> float:
        """GPU time of an iteration: all layers, and the step on every GPU used."""
        return sum(layer.gpu_us for layer in self.layers) + self.step_us * self.gpus_max

    @property
    def amplification(self) -> float:
        """GPU time relative to one GPU."""
        return self.gpu_us / self.one_gpu_us if self.one_gpu_us else 1.0

    @property
    def memory_bytes(self) -> float:
        """Bytes on the GPU that holds most."""
        change: dict[int, float] = {}
        for layer in self.layers:
            for gpu, sign in ((layer.first_gpu, 1), (layer.first_gpu + layer.gpus, -1)):
                change[gpu] = change.get(gpu, 0.0) + sign * layer.memory_bytes
        peak = held = 0.0
        for gpu in sorted(change):
            held += change[gpu]
            peak = max(peak, held)
        return peak

    @property
    def images_per_s(self) -> float:
        """Samples per second."""
        return self.batch / self.iteration_us * 1e6 if self.iteration_us else 0.0

    def row(self) -> dict[str, object]:
        """Keys of ``explorer plan --json`` that describe the plan."""
        layers = [
            {
                "name": layer.name,
                "gpus": layer.gpus,
                "first_gpu": layer.first_gpu,
                "compute_us": layer.compute_us,
                "forward_us": layer.forward_us,
                "backward_us": layer.backward_us,
                "sync_us": layer.sync_us,
                "reshard_us": layer.reshard_us,
                "start_us": layer.start_us,
            }
            for layer in self.layers
        ]
        return {
            "model": self.model,
            "mode": self.mode,
            "batch": self.batch,
            "gpus": self.gpus,
            "limit": self.limit,
            "price": self.price,
            "network": self.network,
            "iteration_us": self.iteration_us,
            "gpu_us": self.gpu_us,
            "amplification": self.amplification,
            "gpus_max": self.gpus_max,
            "step_us": self.step_us,
            "step_known": self.step_known,
            "one_gpu_us": self.one_gpu_us,
            "memory_bytes": self.memory_bytes,
            "layers": layers,
        }
