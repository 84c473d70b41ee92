#!/usr/bin/env python3
"""Writes tests/data/lr_schedules.json: the learning rates of torch.optim.lr_scheduler, for lr_scheduler_test.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install torch
    /tmp/venv/bin/python tools/lr_schedule_table.py tests/data/lr_schedules.json

Every schedule starts from a rate of 0.5. A case lists the rates after 0, 1, 2, ... steps. Cosine and one cycle end where
they end here: beyond that ours stay where they are.
"""
import json
import sys
import warnings

import torch
from torch.optim import lr_scheduler as s

LR = 0.5
PLATEAU = [3.0, 2.0, 2.5, 1.9999, 1.5, 1.6, 1.6, 1.4999, 1.7, 1.7, 1.7, 1.7, 1.2, 1.3, 1.3, 1.3, 1.3, 1.3, 1.3, 1.3]


def optimizer():
    return torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=LR)


def rates(make, steps):
    opt = optimizer()
    schedule = make(opt)
    result = [opt.param_groups[0]["lr"]]
    for _ in range(steps):
        opt.step()
        schedule.step()
        result.append(opt.param_groups[0]["lr"])
    return result


def plateau(values, **options):
    opt = optimizer()
    schedule = s.ReduceLROnPlateau(opt, **options)
    result = [opt.param_groups[0]["lr"]]
    for value in values:
        opt.step()
        schedule.step(value)
        result.append(opt.param_groups[0]["lr"])
    return result


def warm_up(opt):
    linear = s.LinearLR(opt, start_factor=1 / 9, end_factor=1, total_iters=8)
    return s.SequentialLR(opt, [linear, s.CosineAnnealingLR(opt, 32)], [8])


def main():
    warnings.simplefilter("ignore")
    down = [-x for x in PLATEAU]
    cases = {
        "step": rates(lambda o: s.StepLR(o, 7, gamma=0.3), 40),
        "multi_step": rates(lambda o: s.MultiStepLR(o, [3, 11, 12, 30], gamma=0.5), 40),
        "exponential": rates(lambda o: s.ExponentialLR(o, 0.93), 40),
        "linear": rates(lambda o: s.LinearLR(o, start_factor=0.2, end_factor=0.9, total_iters=13), 20),
        "polynomial": rates(lambda o: s.PolynomialLR(o, total_iters=17, power=2.5), 20),
        "cosine": rates(lambda o: s.CosineAnnealingLR(o, 37, eta_min=0.01), 37),
        "one_cycle": rates(lambda o: s.OneCycleLR(o, LR, total_steps=50), 49),
        "one_cycle_linear": rates(lambda o: s.OneCycleLR(
            o, LR, total_steps=33, pct_start=0.17, anneal_strategy="linear", div_factor=10, final_div_factor=100), 32),
        "one_cycle_three_phase": rates(lambda o: s.OneCycleLR(o, LR, total_steps=41, three_phase=True), 40),
        "chained": rates(lambda o: s.ChainedScheduler([s.LinearLR(o, 0.1, 1, 9), s.ExponentialLR(o, 0.95)]), 30),
        "sequential": rates(lambda o: s.SequentialLR(
            o, [s.LinearLR(o, 0.1, 1, 6), s.StepLR(o, 4, 0.5), s.ExponentialLR(o, 0.9)], [6, 20]), 30),
        "warm_up": rates(warm_up, 40),
        "plateau": plateau(PLATEAU, patience=2, factor=0.5),
        "plateau_absolute": plateau(PLATEAU, patience=1, factor=0.5, threshold=0.2, threshold_mode="abs",
                                    cooldown=2, min_lr=0.1),
        "plateau_max": plateau(down, mode="max", patience=1, factor=0.1, threshold=0.01, threshold_mode="abs"),
    }
    head = {"torch": torch.__version__.split("+")[0], "lr": LR, "plateau_values": PLATEAU}
    with open(sys.argv[1], "w", encoding="ascii") as file:
        file.write(",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in cases.items()).join(
            (json.dumps(head)[:-1] + ', "cases": {\n', "\n}}\n")))


main()
