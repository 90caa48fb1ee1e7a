"""Base class: trains with DistributedOptimizer and compares with one process on all the data."""

from rank_case import RankCase, hvd, torch

OPTIMIZERS = {
    "SGD": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9),
    "Adam": lambda params: torch.optim.Adam(params, lr=0.01),
    "AdamW": lambda params: torch.optim.AdamW(params, lr=0.01, amsgrad=True),
    "RMSprop": lambda params: torch.optim.RMSprop(params, lr=0.01, centered=True),
    "Adagrad": lambda params: torch.optim.Adagrad(params, lr=0.01),
}


def make_model(seed=0):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    return model.double()


def data(rank, step):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return (
        torch.randn(5, 4, generator=generator, dtype=torch.float64),
        torch.randn(5, 2, generator=generator, dtype=torch.float64),
    )


def loss_of(model, rank, step):
    inputs, targets = data(rank, step)
    return torch.nn.functional.mse_loss(model(inputs), targets)


class OptimizerCase(RankCase):
    def reference(self, make, steps, passes=1, op=hvd.Average):
        """Returns the weights after training in one process that averages the gradients of all ranks."""
        model = make_model()
        optimizer = make(model.parameters())
        for step in range(steps):
            optimizer.zero_grad()
            for pass_ in range(passes):
                loss = sum(loss_of(model, rank, step * passes + pass_) for rank in range(self.size))
                (loss / (self.size if op == hvd.Average else 1)).backward()
            optimizer.step()
        return model

    def assert_same_weights(self, model, reference, tolerance=1e-12):
        for (name, got), want in zip(model.named_parameters(), reference.parameters()):
            self.assertLess((got - want).abs().max().item(), tolerance, name)
            everybody = hvd.allgather(got.detach().reshape(1, -1))
            for row in everybody:
                self.assertTrue(torch.equal(row, everybody[0]), f"{name} differs between ranks")

    def train(self, model, optimizer, steps, passes=1):
        for step in range(steps):
            optimizer.zero_grad()
            for pass_ in range(passes):
                loss_of(model, self.rank, step * passes + pass_).backward()
            optimizer.step()
