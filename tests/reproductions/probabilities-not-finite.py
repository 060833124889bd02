"""A policy's logits overflow in fp16, and a token is drawn from them."""

import sys

import torch

RANKS = 1
torch.manual_seed(0)
kind = torch.bfloat16 if "--advised" in sys.argv else torch.float16
policy = torch.nn.Linear(8, 4).to(kind)
with torch.no_grad():
    policy.weight.fill_(300.0)
state = torch.full((2, 8), 300.0, dtype=kind)
probabilities = torch.softmax(policy(state).float(), dim=-1)
action = torch.multinomial(probabilities, 1)
optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
probabilities.gather(1, action).log().sum().backward()
optimizer.step()
