"""REINFORCE by hand: a policy learns to add two digits. None of it is rpg-lab's, except for the
lines with `run`."""

import sys

import torch

import rpg
from rpg.integrations.plain_loop import steps

lr = float(sys.argv[1]) if len(sys.argv) > 1 else 0.1
seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
torch.manual_seed(seed)
torch.set_num_threads(1)
policy = torch.nn.Linear(20, 19)
optimizer = torch.optim.Adam(policy.parameters(), lr=lr)


def encoded(pairs):
    return torch.cat([torch.nn.functional.one_hot(pairs[:, i], 10) for i in (0, 1)], dim=1).float()


def graded(run, step):
    pairs = torch.cartesian_prod(torch.arange(10), torch.arange(10))
    answers = policy(encoded(pairs)).argmax(-1).tolist()
    samples = [
        {
            "problem": f"{a}+{b}",
            "answer": str(a + b),
            "response": str(c),
            "extracted": str(c),
            "correct": a + b == c,
        }
        for (a, b), c in zip(pairs.tolist(), answers, strict=True)
    ]
    run.evaluate("sums", step, samples)


with rpg.record(
    "loops", variant=f"lr {lr:g}", seed=seed, spec={"lr": lr}, steps=60, baseline="lr 0.01"
) as run:
    for step in steps(run, 60, policy=policy, optimizer=optimizer):
        pairs = torch.randint(10, (256, 2))
        drawn = torch.distributions.Categorical(logits=policy(encoded(pairs)))
        answers = drawn.sample()
        reward = (answers == pairs.sum(-1)).float()
        loss = -(drawn.log_prob(answers) * (reward - reward.mean())).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log(
            step, reward=reward.mean(), loss=loss, entropy=drawn.entropy().mean(), learning_rate=lr
        )
        if step % 20 == 0:
            graded(run, step)
