"""Baselines of a plan: data parallel on every GPU count, and the machine partitioned."""

from __future__ import annotations

from dataclasses import dataclass

from explorer.burst.plan import TrainingPlan
from explorer.burst.planner import Planner


@dataclass(frozen=True, slots=True)
class Partition:
    """Foreground data parallel on half the GPUs, the rest left to background jobs.

    Parameters
    ----------
    foreground
        Its plan.
    background_gpus
        GPUs that it leaves free all the time.
    """

    foreground: TrainingPlan
    background_gpus: int


@dataclass(frozen=True, slots=True)
class Baselines:
    """What a plan is compared with.

    Parameters
    ----------
    data_parallel
        Plans on every GPU count that the profile has times for, ascending; where it has holes,
        there may be none.
    partition
        None on one GPU, or where the profile has no times for half of them.
    """

    data_parallel: tuple[TrainingPlan, ...]
    partition: Partition | None

    @property
    def plain(self) -> TrainingPlan | None:
        """Data parallel on most GPUs: what speed-ups are measured against."""
        return self.data_parallel[-1] if self.data_parallel else None

    @property
    def fastest(self) -> TrainingPlan | None:
        """Fastest data parallel; where it is not :attr:`plain`, that one is a weak baseline."""
        return min(self.data_parallel, key=lambda plan: plan.iteration_us, default=None)

    def speedup(self, plan: TrainingPlan) -> float | None:
        """Iterations of a plan in the time of one of :attr:`plain`."""
        return None if self.plain is None else self.plain.iteration_us / plan.iteration_us


def baselines(planner: Planner) -> Baselines:
    """Plan every baseline."""
    plans = tuple(planner.data_parallel(count) for count in planner.data_parallel_counts())
    gpus = planner.tables.gpus
    half = [plan for plan in plans if plan.gpus_max <= gpus // 2]
    partition = Partition(half[-1], gpus - half[-1].gpus_max) if half else None
    return Baselines(plans, partition)
