"""hogwild - training loops that share the processor politely and survive being stopped.

On a machine without a graphics card N single-threaded processes that share parameters and Adam state beat
one process with N threads (measured: 2 x 1 thread 31 pictures/s, 1 x 2 threads 11), and never stall at
an OpenMP barrier when somebody else wants a core. A lock makes each update atomic; gradients are at most
one or two updates old.
Everything is counted in samples, never in seconds, so a pause or a busy machine only delays a run.

A run lives in a folder:
  last.pt    weights, their moving average, Adam state, counters; written every few minutes, resumed from
  plan.json  {"asked": end on the command line, "decay_from", "end": in samples}; the latter two are
             read again while running: edit them to end sooner or later
  stop       create it to save and stop now
  log.txt    what is printed
The environment variable DR_PIDS may name a file that lists the running processes, one id a line, for
those who want to pause them while they measure something; DR_DUTY=0.5 makes a run rest half of the time,
to share a machine with another one.
SPDX-License-Identifier: MIT
"""
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import fcntl
import json
import math
import sys
import time

import numpy as np
import torch
import torch.multiprocessing as mp

torch.set_num_threads(1)


def register_pid(add=True):
    """Keep the list of running processes current; without DR_PIDS do nothing."""
    path = os.environ.get("DR_PIDS")
    if not path:
        return
    with open(path, "a+") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        f.seek(0)
        pids = [p for p in f.read().split() if os.path.exists("/proc/" + p)]
        me = str(os.getpid())
        pids = [p for p in pids if p != me] + ([me] if add else [])
        f.seek(0)
        f.truncate()
        f.write("".join(p + "\n" for p in pids))


def rest(since):
    """Sleep as long as DR_DUTY asks after an update that began at process_time() since."""
    duty = float(os.environ.get("DR_DUTY", "1"))
    if duty < 1:
        time.sleep((time.process_time() - since) * (1 / duty - 1))


def launch(job, n_processes):
    """Run job(rank) in n forked processes and wait for them."""
    def body(rank):
        torch.set_num_threads(1)
        register_pid()
        try:
            job(rank)
        finally:
            register_pid(add=False)
    processes = [mp.get_context("fork").Process(target=body, args=(i,)) for i in range(n_processes)]
    for p in processes:
        p.start()
    for p in processes:
        p.join()
    if any(p.exitcode for p in processes):
        sys.exit("a training process failed")


def shared(tensor):
    return tensor.clone().share_memory_()


def save_atomically(path, value):
    torch.save(value, path + ".tmp")
    os.replace(path + ".tmp", path)


class SharedAdamW:
    """AdamW whose parameters and state lie in shared memory.

    scale: {name: factor on the learning rate}; parameters with factor 0 get no state."""

    def __init__(self, named_parameters, beta1, beta2, weight_decay, scale=None, eps=1e-8):
        scale = scale or {}
        self.names = [k for k, p in named_parameters if p.requires_grad]
        self.params = [p for k, p in named_parameters if p.requires_grad]
        self.scale = [scale.get(k, 1.0) for k in self.names]
        self.m = [shared(torch.zeros_like(p.data)) for p in self.params]
        self.v = [shared(torch.zeros_like(p.data)) for p in self.params]
        self.updates = shared(torch.zeros(1, dtype=torch.long))
        self.beta1, self.beta2, self.weight_decay, self.eps = beta1, beta2, weight_decay, eps
        self.lock = mp.Lock()

    @torch.no_grad()
    def step(self, lr, clip=1.0):
        """One update from the .grad fields, which it clears; returns the norm of the gradient."""
        live = [i for i, p in enumerate(self.params) if p.grad is not None]
        g = [self.params[i].grad for i in live]
        norm = math.sqrt(sum(float(x.pow(2).sum()) for x in g))
        if math.isfinite(norm):
            if norm > clip:
                torch._foreach_mul_(g, clip / (norm + 1e-6))
            with self.lock:
                self._apply(live, g, lr)
        for p in self.params:
            p.grad = None
        return norm

    def _apply(self, live, g, lr):
        self.updates += 1
        t = int(self.updates)
        p, m, v = ([group[i] for i in live] for group in
                   ([q.data for q in self.params], self.m, self.v))
        torch._foreach_mul_(m, self.beta1)
        torch._foreach_add_(m, g, alpha=1 - self.beta1)
        torch._foreach_mul_(v, self.beta2)
        torch._foreach_addcmul_(v, g, g, 1 - self.beta2)
        root = torch._foreach_sqrt(v)
        torch._foreach_div_(root, math.sqrt(1 - self.beta2 ** t))
        torch._foreach_add_(root, self.eps)
        if self.weight_decay:
            torch._foreach_mul_(p, 1 - lr * self.weight_decay)
        for s in set(self.scale):
            k = [j for j, i in enumerate(live) if self.scale[i] == s]
            if k:
                torch._foreach_addcdiv_([p[j] for j in k], [m[j] for j in k], [root[j] for j in k],
                                        -s * lr / (1 - self.beta1 ** t))


class Trainer:
    """Several nets trained together by several processes.

    nets: {name: module}; modules with requires_grad switched off are saved, not trained.
    make_loss(rank) -> function(done) -> (loss, {statistic: value}); done is the share of the run behind us.
    """
    EMA_EVERY = 4

    def __init__(self, out, nets, lr, batch, beta1=0.9, beta2=0.99, weight_decay=0.01, ema=0.999,
                 warmup=200, scale=None, configs=None, decay_share=0.15, shape="linear"):
        os.makedirs(out, exist_ok=True)
        self.out, self.nets, self.lr, self.batch = out, nets, lr, batch
        self.ema_decay, self.warmup, self.configs = ema, warmup, configs or {}
        self.decay_share, self.shape = decay_share, shape
        for net in nets.values():
            net.share_memory()
        named = [(n + "." + k, p) for n, net in nets.items() for k, p in net.named_parameters()]
        self.optimizer = SharedAdamW(named, beta1, beta2, weight_decay, scale)
        self.samples = shared(torch.zeros(1, dtype=torch.long))
        self.average = {n: {k: shared(v) for k, v in net.state_dict().items()}
                        for n, net in nets.items()}

    # -- state ------------------------------------------------------------------------------------

    def path(self, name):
        return os.path.join(self.out, name)

    def save(self):
        o = self.optimizer
        save_atomically(self.path("last.pt"), dict(
            configs=self.configs, samples=int(self.samples), updates=int(o.updates),
            nets={n: net.state_dict() for n, net in self.nets.items()}, average=self.average,
            m=dict(zip(o.names, o.m)), v=dict(zip(o.names, o.v))))

    def resume(self, path=None):
        """Go on from this folder's last.pt, or begin with the weights of another one."""
        own = self.path("last.pt")
        path = own if os.path.exists(own) else path
        if not path:
            return False
        z = torch.load(path, map_location="cpu")
        with torch.no_grad():
            for n, net in self.nets.items():
                net.load_state_dict(z["nets"][n])
                for k, v in z["average"][n].items():
                    self.average[n][k].copy_(v)
            o = self.optimizer
            for i, k in enumerate(o.names):
                if k in z["m"]:
                    o.m[i].copy_(z["m"][k])
                    o.v[i].copy_(z["v"][k])
        o.updates[0], self.samples[0] = z["updates"], z["samples"]
        print("resumed %s at %d samples" % (path, z["samples"]), flush=True)
        return True

    def plan(self):
        with open(self.path("plan.json")) as f:
            plan = json.load(f)
        return plan["decay_from"], plan["end"]

    def set_plan(self, end):
        """Write plan.json; one that was written for the same end stays, perhaps edited by hand."""
        path = self.path("plan.json")
        if os.path.exists(path):
            with open(path) as f:
                if json.load(f).get("asked") == end:
                    return
        first = int(self.samples)
        with open(path, "w") as f:
            json.dump(dict(asked=end, end=end,
                           decay_from=int(end - (end - first) * self.decay_share)), f)

    # -- the loop ---------------------------------------------------------------------------------

    def learning_rate(self, n, decay_from, end):
        rate = self.lr * min(1.0, (int(self.optimizer.updates) + 1) / self.warmup)
        left = min(1.0, max(0.0, (end - n) / max(1, end - decay_from)))
        if self.shape == "cosine":
            left = 0.5 - 0.5 * math.cos(math.pi * left)
        return rate * max(0.02, left)

    @torch.no_grad()
    def update_average(self):
        t = int(self.optimizer.updates)
        decay = min(self.ema_decay, (1 + t) / (10 + t)) ** self.EMA_EVERY
        for n, net in self.nets.items():
            a, b = list(self.average[n].values()), list(net.state_dict().values())
            torch._foreach_mul_(a, decay)
            torch._foreach_add_(a, b, alpha=1 - decay)

    def run(self, make_loss, end, n_processes=2, log_every=50, save_every=180):
        """Train until `end` samples, or until plan.json or a file named stop say otherwise."""
        self.set_plan(end)

        def job(rank):
            torch.manual_seed(int(self.samples) * 7 + rank)
            loss_of, rows, began = make_loss(rank), [], time.time()
            saved, step, first = began, 0, int(self.samples)
            while not os.path.exists(self.path("stop")):
                decay_from, last = self.plan()
                n = int(self.samples)
                if n >= last:
                    break
                spent = time.process_time()
                loss, stats = loss_of(n / last)
                loss.backward()
                rate = self.learning_rate(n, decay_from, last)
                norm = self.optimizer.step(rate)
                self.samples += self.batch
                step += 1
                if int(self.optimizer.updates) % self.EMA_EVERY == 0:
                    self.update_average()
                rows.append(dict(loss=float(loss), norm=norm, **stats))
                if rank == 0 and step % log_every == 0:
                    mean = {k: np.nanmean([r[k] for r in rows]) for k in rows[0]}
                    rows.clear()
                    self.log(rate, mean, time.process_time(), (n - first) / (time.time() - began))
                rest(spent)
                if rank == 0 and time.time() - saved > save_every:
                    saved = time.time()
                    self.save()

        launch(job, n_processes)
        self.save()

    def log(self, rate, mean, cpu_s, speed):
        line = "%s samples %d cpu %.0f s (%.1f/s) lr %.1e " % (
            time.strftime("%T"), int(self.samples), cpu_s, speed, rate)
        line += " ".join("%s %.4f" % item for item in mean.items())
        print(line, flush=True)
        with open(self.path("log.txt"), "a") as f:
            f.write(line + "\n")
