"""Complex tensors of torch beyond the table of types: gradients, optimizers, views, groups, process sets."""

import numpy
import rank_case
from rank_case import RankCase, hvd, torch


def numbers(rank, *shape, dtype=torch.complex128):
    generator = torch.Generator().manual_seed(rank)
    return torch.complex(
        torch.randn(shape, generator=generator, dtype=torch.float64),
        torch.randn(shape, generator=generator, dtype=torch.float64),
    ).to(dtype)


def loss_of(output):
    """A real loss that depends on the phase too."""
    return (output.real**2 * 3 + output.imag * output.real + output.imag.exp()).sum()


class ComplexTest(RankCase):
    def everybody(self, *shape):
        return [numbers(rank, *shape) for rank in range(self.size)]

    def near(self, got, want, message=None):
        got, want = (each.detach().resolve_conj().resolve_neg().numpy() for each in (got, want))
        numpy.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12, err_msg=str(message))

    def own_gradients(self, function, shape):
        """Returns the gradients of each rank's input, by torch alone. The loss is the sum of all ranks' losses on the
        results of `function`, which takes the inputs of all ranks."""
        inputs = [each.requires_grad_() for each in self.everybody(*shape)]
        sum(loss_of(output) for output in function(inputs)).backward()
        return inputs[self.rank].grad

    def test_gradients_are_those_of_one_process(self):
        rows = 2 * self.size

        def cut(tensor):
            return tensor.split(2)

        for what, ours, whole in (
            ("sum", lambda x: hvd.allreduce(x, op=hvd.Sum), lambda xs: [sum(xs)] * self.size),
            ("alltoall", hvd.alltoall, lambda xs: [torch.cat([cut(x)[rank] for x in xs]) for rank in range(self.size)]),
            ("reducescatter", lambda x: hvd.reducescatter(x, op=hvd.Sum), lambda xs: cut(sum(xs))),
        ):
            mine = numbers(self.rank, rows, 3).requires_grad_()
            loss_of(ours(mine)).backward()
            # Convention for real tensors: reducescatter multiplies by the number of ranks, allreduce sums.
            factor = self.size if what == "reducescatter" else 1
            self.near(mine.grad, self.own_gradients(whole, (rows, 3)) * factor, what)
        for what, function in (
            ("allgather", hvd.allgather),
            ("broadcast", lambda x: hvd.broadcast(x, 0)),
            ("group", lambda x: hvd.grouped_allgather([x, x.real])[0]),
        ):
            parts = []
            for part in (torch.real, torch.imag):  # gradients of the real and the imaginary part
                mine = numbers(self.rank, rows, 3)
                leaf = part(mine).clone().requires_grad_()
                other = mine.imag if part is torch.real else mine.real
                pair = (leaf, other) if part is torch.real else (other, leaf)
                received = [function(each) for each in pair]
                loss_of(torch.complex(*received)).backward()
                parts.append(leaf.grad)
            mine = numbers(self.rank, rows, 3).requires_grad_()
            loss_of(function(mine)).backward()
            self.near(mine.grad, torch.complex(*parts), what)

    def test_optimizers_train_complex_parameters_as_one_process(self):
        for options in ({}, {"compression": hvd.Compression.fp16}, {"groups": 1}, {"backward_passes_per_step": 2}):
            for size in (3, 300000):
                start = numbers(99, size)
                weight, bias = torch.nn.Parameter(start.clone()), torch.nn.Parameter(torch.zeros(4))
                alone = start.clone().requires_grad_()
                optimizer = hvd.DistributedOptimizer(
                    torch.optim.SGD([weight, bias], lr=0.1),
                    named_parameters=[("weight", weight), ("bias", bias)],
                    **options,
                )
                by_one = torch.optim.SGD([alone], lr=0.1)
                passes = options.get("backward_passes_per_step", 1)
                for _ in range(2):
                    optimizer.zero_grad()
                    by_one.zero_grad()
                    for _ in range(passes):
                        (loss_of(weight * (self.rank + 1)) / size + bias.sum()).backward()
                    for rank in range(self.size):
                        (loss_of(alone * (rank + 1)) * passes / size / self.size).backward()
                    optimizer.step()
                    by_one.step()
                self.near(weight, alone, (options, size))

    def test_parameters_and_states_are_broadcast(self):
        weight = torch.nn.Parameter(numbers(self.rank, 5))
        hvd.broadcast_parameters([("weight", weight)], 0)
        self.near(weight, numbers(0, 5))
        optimizer = torch.optim.Adam([weight], lr=0.1 * (self.rank + 1))
        loss_of(weight * (self.rank + 1)).backward()
        optimizer.step()
        hvd.broadcast_optimizer_state(optimizer, 0)
        state = hvd.allgather(optimizer.state[weight]["exp_avg"][None])
        self.near(state, state[:1].expand_as(state))
        self.assertTrue(state.is_complex())

    def test_views_that_are_conjugated_or_strided(self):
        total = sum(self.everybody(4, 3))
        mine = numbers(self.rank, 4, 3)
        self.near(hvd.allreduce(mine.conj(), op=hvd.Sum), total.conj())
        self.near(hvd.allreduce(mine.conj().imag, op=hvd.Sum), -total.imag)
        self.near(hvd.allreduce_(mine.clone().conj().imag, op=hvd.Sum, name="negated"), -total.imag)
        # A view of one element is dense too: the fast path of in-place calls recognises it.
        single = mine[0, :1].clone().conj().imag
        hvd.allreduce_(single, op=hvd.Max, name="single")
        self.near(single, torch.stack([-each[0, :1].imag for each in self.everybody(4, 3)]).max(0).values)
        self.near(hvd.allreduce(mine.t(), op=hvd.Sum), total.t())
        conjugated = mine.clone().conj()
        hvd.allreduce_(conjugated, op=hvd.Sum)
        self.near(conjugated, total.conj())
        columns = mine.clone()
        hvd.allreduce_(columns[:, 1], op=hvd.Sum)
        self.near(columns[:, 1], total[:, 1])
        self.near(columns[:, 0], mine[:, 0])

    def test_numbers_without_dimensions(self):
        mine = numbers(self.rank)
        self.near(hvd.allreduce(mine, op=hvd.Sum), sum(self.everybody()))
        self.near(hvd.broadcast(mine, 0), numbers(0))
        for function in (hvd.allgather, hvd.alltoall, hvd.reducescatter):
            with self.assertRaisesRegex(ValueError, "(?i)dimension|rank-zero|scalar"):
                function(mine)

    def test_factors_process_sets_and_uneven_rows(self):
        mine = numbers(self.rank, 6)
        got = hvd.allreduce(mine, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0)
        self.near(got, sum(self.everybody(6)) * 1.5)
        self.near(
            hvd.allgather(mine[: self.rank + 1]), torch.cat([numbers(rank, 6)[: rank + 1] for rank in range(self.size)])
        )
        if self.size > 1:
            members = hvd.add_process_set([self.size - 1])
            if members.included():
                self.near(hvd.allreduce(mine, process_set=members), mine)
            hvd.remove_process_set(members)
            with self.assertRaisesRegex(ValueError, "(?i)shape"):
                hvd.allreduce(numbers(0, 6 + self.rank), name="differs")


if __name__ == "__main__":
    rank_case.main()
