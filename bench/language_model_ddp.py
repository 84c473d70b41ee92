#!/usr/bin/env python3
"""Trains the model of examples/language_model with Python's DistributedDataParallel over Gloo, next to the example
itself, and compares tokens per second.

  language_model_ddp.py PROGRAM [--rounds N] [--epochs N] [--limit WINDOWS]

PROGRAM is the built example. Needs a PyTorch with scaled_dot_product_attention and a fused AdamW for CPUs, best of the
version of LibTorch that the example was built with. The two take turns, round by round. Each figure is that of the last
epoch, over all ranks, without start, validation and samples; the last line has the medians. Architecture, optimizer,
batches and schedule are those of language_model.cpp with its defaults; ranks have one thread each, as `torchrun` gives
them.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WORKERS = 2
LAYERS, HEADS, WIDTH, CONTEXT = 4, 4, 128, 128
BATCH_SIZE, ACCUMULATE = 4, 2
LR, WEIGHT_DECAY, CLIP, SEED = 2e-3, 0.1, 1.0, 42
FORTUNES = ("computers", "cookie", "definitions", "literature", "people", "science", "wisdom", "work")
VOCABULARY = 256


def read_text():
    """What language_model.cpp trains on: all but the last tenth of each file."""
    files = [(Path("/usr/share/games/fortunes") / x).read_bytes() for x in FORTUNES]
    return b"".join(x[:len(x) // 10 * 9] for x in files)


def make_model(torch):
    nn, F = torch.nn, torch.nn.functional

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
            self.out = nn.Linear(WIDTH, WIDTH)

        def forward(self, x):
            n, length, _ = x.shape
            q, k, v = self.qkv(x).view(n, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(seen.transpose(1, 2).reshape(n, length, WIDTH))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1 = nn.LayerNorm(WIDTH)
            self.attention = Attention()
            self.norm2 = nn.LayerNorm(WIDTH)
            setattr(self, "in", nn.Linear(WIDTH, 4 * WIDTH))
            self.out = nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x):
            x = x + self.attention(self.norm1(x))
            return x + self.out(F.gelu(getattr(self, "in")(self.norm2(x)), approximate="tanh"))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(VOCABULARY, WIDTH)
            self.positions = nn.Embedding(CONTEXT, WIDTH)
            self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
            self.norm = nn.LayerNorm(WIDTH)
            for name, x in self.named_parameters():
                if name.endswith("bias"):
                    nn.init.zeros_(x)
                elif x.dim() == 2:
                    nn.init.normal_(x, 0, 0.02 / (2 * LAYERS) ** 0.5 if name.endswith("out.weight") else 0.02)

        def forward(self, tokens):
            x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
            return F.linear(self.norm(self.blocks(x)), self.tokens.weight)

    return GPT()


def make_optimizer(torch, model):
    groups = [{"params": [x for x in model.parameters() if x.dim() >= 2], "weight_decay": WEIGHT_DECAY},
              {"params": [x for x in model.parameters() if x.dim() < 2], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=LR, betas=(0.9, 0.99), fused=True)


def train(rank, store, epochs, limit):
    """One rank; rank 0 prints its last epoch's loss and tokens per second as JSON."""
    import torch
    from contextlib import nullcontext
    from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=WORKERS)
    torch.manual_seed(SEED)
    text = torch.frombuffer(bytearray(read_text()), dtype=torch.uint8)
    model = torch.nn.parallel.DistributedDataParallel(make_model(torch), gradient_as_bucket_view=True)
    optimizer = make_optimizer(torch, model)
    per_step = BATCH_SIZE * ACCUMULATE * WORKERS
    steps = min(limit, (len(text) - 1) // CONTEXT) // per_step
    total = steps * epochs
    warm_up = total // 20
    schedule = SequentialLR(optimizer, [
        LinearLR(optimizer, 1 / (warm_up + 1), total_iters=warm_up),
        CosineAnnealingLR(optimizer, total - warm_up, 0.1 * LR)], [warm_up])
    loss_sum = torch.zeros(())
    for epoch in range(epochs):
        order = torch.randperm(steps * per_step, generator=torch.Generator().manual_seed(epoch))[rank::WORKERS]
        loss_sum.zero_()
        begin = time.perf_counter()
        for number, indices in enumerate(order.split(BATCH_SIZE), 1):
            x = text[indices[:, None] * CONTEXT + torch.arange(CONTEXT + 1)].long()
            is_last = number % ACCUMULATE == 0
            with nullcontext() if is_last else model.no_sync():
                logits = model(x[:, :-1])
                loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), x[:, 1:].flatten())
                (loss / ACCUMULATE).backward()
            loss_sum += loss.detach()
            if is_last:
                torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
        torch.distributed.all_reduce(loss_sum)
        seconds = time.perf_counter() - begin
    if rank == 0:
        print(json.dumps({"train/loss": loss_sum.item() / (steps * ACCUMULATE * WORKERS),
                          "tokens_per_s": steps * per_step * CONTEXT / seconds}))
    torch.distributed.destroy_process_group()


def run_python(args):
    with tempfile.TemporaryDirectory() as folder:
        ranks = [subprocess.Popen([sys.executable, __file__, str(args.program), "--epochs", str(args.epochs), "--limit",
                                   str(args.limit), "--rank", str(rank), "--store", f"{folder}/store"],
                                  env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, text=True)
                 for rank in range(WORKERS)]
        printed = [x.communicate()[0] for x in ranks]
        if any(x.returncode for x in ranks):
            sys.exit("language_model_ddp: a rank of Python's DDP failed")
        return json.loads(printed[0])


def run_program(args):
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([args.program, "--epochs", str(args.epochs), "--limit", str(args.limit), "--workers",
                               str(WORKERS), "--storage", folder, "--name", "bench"], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"language_model_ddp: {args.program} ended with {done.returncode}:\n{done.stderr}")
        lines = [json.loads(x) for x in (Path(folder) / "bench" / "journal.jsonl").read_text().splitlines()]
        return [x["values"][0] for x in lines if "batch" in x][-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("program", type=lambda x: Path(x).resolve())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=2, help="the first ones warm up")
    parser.add_argument("--limit", type=int, default=2048, help="windows per epoch")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank is not None:
        return train(args.rank, args.store, args.epochs, args.limit)
    rounds = []
    for number in range(args.rounds):
        both = run_program(args), run_python(args)
        rounds.append([x["tokens_per_s"] for x in both])
        losses = " and ".join(f"{x['train/loss']:.3f}" for x in both)
        print(f"round {number}: example {rounds[-1][0]:.0f} tokens/s, Python {rounds[-1][1]:.0f}, losses {losses}, "
              f"load {os.getloadavg()[0]:.1f}", flush=True)
    ours, theirs = (statistics.median(x) for x in zip(*rounds))
    print(f"medians of {args.rounds} rounds: example {ours:.0f} tokens/s, Python {theirs:.0f}, "
          f"ratio {statistics.median(x / y for x, y in rounds):.2f}")


if __name__ == "__main__":
    main()
