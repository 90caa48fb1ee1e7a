"""horovod.jax with jax.distributed, which finds the ranks by itself: Horovod reduces arrays of this rank and refuses
arrays of all processes."""

import rank_base

jax = rank_base.need("jax")
import numpy

import horovod.jax as hvd

jnp = jax.numpy


class GlobalTest(rank_base.RankBase):
    def test_arrays_of_one_and_of_all_processes(self):
        jax.distributed.initialize()
        self.assertEqual((jax.process_count(), jax.process_index()), (self.size, self.rank))
        self.assertEqual(len(jax.local_devices()), 1)
        total = self.size * (self.size + 1) / 2
        step = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum))
        for reduce in (step, lambda x: hvd.allreduce(x, op=hvd.Sum)):
            numpy.testing.assert_array_equal(reduce(jnp.full(3, self.rank + 1.0)), total)
        mesh = jax.sharding.Mesh(numpy.array(jax.devices()), ("ranks",))
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("ranks"))
        array = jax.make_array_from_process_local_data(sharding, numpy.full(3, self.rank + 1.0, "float32"))
        for reduce in (step, hvd.allreduce, hvd.allgather):
            with self.assertRaisesRegex((ValueError, NotImplementedError), r"global array.*addressable_shards\[0\]"):
                reduce(array)
        numpy.testing.assert_array_equal(hvd.allreduce(array.addressable_shards[0].data, op=hvd.Sum), total)


if __name__ == "__main__":
    rank_base.main()
