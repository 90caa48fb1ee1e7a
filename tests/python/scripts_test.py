"""Scripts in the forms of Horovod's users, each with its own `hvd.init`, run unmodified."""

import rank_case
import torch
from rank_case import RankCase

torch.set_num_threads(1)
WEIGHTS = torch.tensor([[1.5, -2.0, 0.5, 3.0]])


def samples(count=48):
    inputs = torch.randn(count, 4, generator=torch.Generator().manual_seed(7))
    return torch.utils.data.TensorDataset(inputs, inputs @ WEIGHTS.t())


def readme():
    import torch.nn.functional as F
    import torch.utils.data.distributed

    import horovod.torch as hvd

    hvd.init()
    if torch.cuda.is_available():
        torch.cuda.set_device(hvd.local_rank())
    train_dataset = samples()
    train_sampler = torch.utils.data.distributed.DistributedSampler(
        train_dataset, num_replicas=hvd.size(), rank=hvd.rank()
    )
    train_loader = torch.utils.data.DataLoader(train_dataset, batch_size=4, sampler=train_sampler)
    torch.manual_seed(hvd.rank())
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03 * hvd.size())
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    losses = []
    for epoch in range(6):
        train_sampler.set_epoch(epoch)
        total = 0.0
        for data, target in train_loader:
            optimizer.zero_grad()
            loss = F.mse_loss(model(data), target)
            loss.backward()
            optimizer.step()
            total += loss.item()
        losses.append(hvd.allreduce(torch.tensor(total), name="avg_loss").item())
    return model, losses


def lbfgs():
    import horovod.torch as hvd

    hvd.init()
    inputs, targets = samples()[hvd.rank() :: hvd.size()]
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    losses = []

    def closure():
        optimizer.zero_grad()
        loss = (model(inputs) - targets).pow(2).mean()
        loss.backward()
        return loss

    for _ in range(3):
        losses.append(optimizer.step(closure).item())
    return model, losses


def sparse_adam():
    import horovod.torch as hvd

    hvd.init()
    losses = []
    for sparse_as_dense in (False, True):
        torch.manual_seed(0)
        model = torch.nn.Embedding(20, 3, sparse=True)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SparseAdam(list(model.parameters()), lr=0.1),
            named_parameters=model.named_parameters(),
            sparse_as_dense=sparse_as_dense,
        )
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        words = torch.tensor([hvd.rank(), 7, 7, 19])
        for _ in range(10):
            optimizer.zero_grad()
            loss = model(words).pow(2).mean()
            loss.backward()
            optimizer.step()
            assert model.weight.grad.is_sparse
            losses.append(loss.item())
    return model, losses


def gradient_accumulation():
    import horovod.torch as hvd

    hvd.init()
    batches_per_allreduce = 3
    inputs, targets = samples()[hvd.rank() :: hvd.size()]
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05 * batches_per_allreduce)
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16,
        backward_passes_per_step=batches_per_allreduce,
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        for i in range(0, 12, 4):
            loss = torch.nn.functional.mse_loss(model(inputs[i : i + 4]), targets[i : i + 4])
            losses.append(loss.item())
            loss.div_(batches_per_allreduce)
            loss.backward()
        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        with optimizer.skip_synchronize():
            optimizer.step()
    return model, losses


def process_sets():
    import horovod.torch as hvd

    first_set, rest_set = hvd.ProcessSet([0]), hvd.ProcessSet([1])
    hvd.init(process_sets=[first_set, rest_set])
    mine = first_set if first_set.included() else rest_set
    assert (hvd.rank() > 1) or mine.size() == 1
    pair = hvd.add_process_set([0, 1]) if hvd.size() > 2 else hvd.global_process_set
    inputs, targets = samples()[:8]
    model = torch.nn.Linear(4, 1)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters(), process_set=pair
    )
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if hvd.rank() < 2:
        alone = hvd.allreduce(torch.tensor(float(hvd.rank())), op=hvd.Sum, process_set=mine)
        assert alone.item() == hvd.rank()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    return model, losses


def adasum():
    import horovod.torch as hvd

    hvd.init()
    inputs, targets = samples()[:12]
    model = torch.nn.Linear(4, 1)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters(), op=hvd.Adasum
    )
    losses = []
    for _ in range(6):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model, losses


def uneven_batches_join():
    import horovod.torch as hvd

    hvd.init()
    inputs, targets = samples()[:4]
    model = torch.nn.Linear(4, 1)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters()
    )
    losses = []
    for _ in range(4 + 2 * hvd.rank()):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    last = hvd.join()
    assert last == hvd.size() - 1, last
    hvd.broadcast_parameters(model.state_dict(), root_rank=last)
    return model, losses


def elastic():
    import horovod.torch as hvd

    hvd.init()
    dataset, losses, failed = samples(), [], []
    sampler = hvd.elastic.ElasticSampler(dataset, shuffle=False)
    loader = torch.utils.data.DataLoader(dataset, batch_size=4, sampler=sampler)
    model = torch.nn.Linear(4, 1)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.03 * hvd.size()), named_parameters=model.named_parameters()
    )

    @hvd.elastic.run
    def train(state):
        for state.epoch in range(state.epoch, 3):  # noqa: B020
            for state.batch, (data, target) in enumerate(loader, state.batch):  # noqa: B020
                optimizer.zero_grad()
                loss = torch.nn.functional.mse_loss(model(data), target)
                loss.backward()
                if not failed and state.epoch == 1 and hvd.rank() == 0:
                    failed.append(hvd.shutdown())
                    raise hvd.HorovodInternalError("a peer is gone")
                optimizer.step()
                state.sampler.record_batch(state.batch, 4)
                losses.append(loss.item())
                if state.batch % 2 == 0:
                    state.commit()
            state.batch = 0
            state.sampler.set_epoch(state.epoch + 1)
            state.commit()

    def on_state_reset():
        for group in optimizer.param_groups:
            group["lr"] = 0.03 * hvd.size()

    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=0, batch=0)
    state.register_reset_callbacks([on_state_reset])
    train(state)
    assert state.epoch == 2, state.epoch
    return model, losses


class ScriptsTest(RankCase):
    def check(self, script):
        import horovod.torch as hvd

        hvd.shutdown()  # the script starts Horovod
        model, losses = script()
        self.assertTrue(hvd.is_initialized())
        self.assertLess(losses[-1], 0.9 * losses[0], losses)
        for param in model.parameters():
            flat = param.detach().reshape(1, -1)
            for row in hvd.allgather(flat):
                self.assert_equal_tensors(row, flat[0], script.__name__)

    def test_readme(self):
        self.check(readme)

    def test_lbfgs(self):
        self.check(lbfgs)

    def test_sparse_adam(self):
        self.check(sparse_adam)

    def test_gradient_accumulation(self):
        self.check(gradient_accumulation)

    def test_process_sets(self):
        self.check(process_sets)

    def test_adasum(self):
        self.check(adasum)

    def test_uneven_batches_join(self):
        self.check(uneven_batches_join)

    def test_elastic(self):
        self.check(elastic)


if __name__ == "__main__":
    rank_case.main()
