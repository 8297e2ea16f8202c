"""Simulates task sets with SimSo, for the bench `simso`.

Standard input: a JSON array of {"policy", "duration_ms", "tasks": [[period_ms, wcet_ms], ...]}.
Standard output: a JSON array of {"seconds", "tasks": [[completed, missed, worst_ns], ...]}, where
`seconds` is CPU time of `Model.run_model` alone.
"""

import json
import sys
import time

from simso.configuration import Configuration
from simso.core import Model, Scheduler
from simso.schedulers import scheduler


class Ranked(Scheduler):
    """One CPU with immediate preemption. A tie goes to the task that comes first in the set."""

    def init(self):
        self.ready = []

    def on_activate(self, job):
        self.ready.append(job)
        job.cpu.resched()

    def on_terminated(self, job):
        self.ready.remove(job)
        job.cpu.resched()

    def schedule(self, cpu):
        best = min(self.ready, key=self.rank) if self.ready else None
        return (best, cpu)


@scheduler("upcall.Rm")
class Rm(Ranked):
    @staticmethod
    def rank(job):
        return (job.task.period, job.task.identifier, job.activation_date)


@scheduler("upcall.Edf")
class Edf(Ranked):
    @staticmethod
    def rank(job):
        return (job.absolute_deadline, job.task.identifier)


def run(asked):
    configuration = Configuration()
    cycles_per_ms = configuration.cycles_per_ms
    configuration.duration = asked["duration_ms"] * cycles_per_ms
    for number, (period, wcet) in enumerate(asked["tasks"]):
        configuration.add_task(
            name=f"t{number}",
            identifier=number,
            period=period,
            deadline=period,
            activation_date=0,
            wcet=wcet,
            abort_on_miss=False,
        )
    configuration.add_processor(name="cpu0", identifier=1)
    configuration.scheduler_info.clas = {"rm": Rm, "edf": Edf}[asked["policy"]]
    configuration.check_all()
    model = Model(configuration)
    begun = time.process_time()
    model.run_model()
    seconds = time.process_time() - begun
    return {"seconds": seconds, "tasks": [sum_up(task, cycles_per_ms) for task in model.task_list]}


def sum_up(task, cycles_per_ms):
    ended = [job for job in task.jobs if job.end_date is not None]
    responses = [job.end_date - job.activation_date * cycles_per_ms for job in ended]
    missed = sum(response > task.period * cycles_per_ms for response in responses)
    worst = max(responses, default=0)
    return [len(ended), missed, round(worst * 1_000_000 / cycles_per_ms)]


json.dump([run(asked) for asked in json.load(sys.stdin)], sys.stdout)
