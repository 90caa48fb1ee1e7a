"""Python objects whose bytes are altered or replayed between ranks: the receiver unpickles none of them.

A relay in the receiving process changes a collective's data, like an attacker on the network between two hosts.
"""

import contextlib
import ctypes
import pickle
import struct
import unittest
from unittest import mock

from rank_base import RankBase, main, need

need("numpy")
import horovod.numpy as hvd
from horovod import _objects

traps = []  # one entry for each Trap that was unpickled


def note():
    traps.append("here")


class Trap:
    def __reduce__(self):
        return note, ()


@contextlib.contextmanager
def relay(change):
    """Replaces the data of each collective with `change(name, data)` on this rank."""
    broadcast, allgather = _objects._broadcast, _objects._allgather

    def changed_broadcast(buffer, dtype, shape, root_rank, name, process_set):
        broadcast(buffer, dtype, shape, root_rank, name, process_set)
        data = bytes(buffer)
        ctypes.memmove(ctypes.addressof(buffer), change(name, data), len(data))

    def changed_allgather(data, name, process_set):
        return change(name, allgather(data, name, process_set))

    with mock.patch.multiple(_objects, _broadcast=changed_broadcast, _allgather=changed_allgather):
        yield


class Flip:
    """Flips the lowest bit of a byte of the objects."""

    def __init__(self, at):
        self.at = at

    def __call__(self, name, data):
        if not name.endswith(".t"):
            return data
        changed = bytearray(data)
        changed[self.at] ^= 1
        return bytes(changed)


class Record:
    """Changes nothing and stores the data, for a replay under any name."""

    def __init__(self):
        self.kept = {}

    def __call__(self, name, data):
        self.kept[name.rpartition(".")[2]] = data
        return data

    def replay(self, *kinds):
        return lambda name, data: self.kept[kind] if (kind := name.rpartition(".")[2]) in kinds else data


def unchanged(name, data):
    return data


class ObjectsTest(RankBase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if cls.size == 1:
            raise unittest.SkipTest("needs at least two ranks")

    def setUp(self):
        super().setUp()
        traps.clear()
        self.last = self.size - 1

    def broadcast(self, thing, changes, name="precious", of_size=False):
        """Broadcasts from rank 0. The last rank gets the object with `changes` and refuses it; other ranks receive it.
        After a change `of_size` the last rank does not allocate, and all ranks fail."""
        with relay(changes if self.rank == self.last else unchanged):
            if of_size and self.rank != self.last:
                with self.assertRaises(hvd.HorovodInternalError):
                    hvd.broadcast_object(thing, 0, name=name)
                return
            if self.rank != self.last:
                self.assertEqual(hvd.broadcast_object(thing, 0, name=name), thing)
                return
            with self.assertRaisesRegex(
                hvd.HorovodInternalError,
                f"^broadcast_object {name}: the (object of rank 0|list of sizes) reached rank "
                f"{self.rank} altered or replayed and is refused; restart the job",
            ):
                hvd.broadcast_object(None, 0, name=name)

    def allgather(self, thing, changes, what="object of rank 0", name="precious", of_sizes=False):
        """Gathers on all ranks. The last rank's error must contain `what`. A change `of_sizes` also spoils the last
        rank's own signature, so other ranks refuse its object."""
        with relay(changes if self.rank == self.last else unchanged):
            if of_sizes and self.rank != self.last:
                what = f"object of rank {self.last}"
            elif self.rank != self.last:
                self.assertEqual(hvd.allgather_object(thing, name=name), [thing] * self.size)
                return
            with self.assertRaisesRegex(
                hvd.HorovodInternalError,
                f"^allgather_object {name}: the {what} reached rank {self.rank} altered or replayed "
                "and is refused; restart the job",
            ):
                hvd.allgather_object(thing, name=name)

    def test_an_altered_bit_of_a_broadcast_is_noticed(self):
        for at in (0, 40, 99, -1):
            self.broadcast(b"x" * 100, Flip(at))
        self.assertEqual(hvd.broadcast_object(self.rank, 0, name="precious"), 0)

    def test_an_altered_bit_of_an_allgather_is_noticed_and_its_sender_named(self):
        for at, sender in [(0, 0), (40, 0), (-40, self.last), (-1, self.last)]:
            self.allgather(b"x" * 100, Flip(at), f"object of rank {sender}")
        self.assertEqual(hvd.allgather_object(self.rank, name="precious"), list(range(self.size)))

    def test_a_stranger_s_pickle_is_not_read(self):
        def replaced(name, data):
            return pickle.dumps(Trap()) + data[len(pickle.dumps(Trap())) :] if name.endswith(".t") else data

        self.allgather(b"x" * 1000, replaced)
        self.assertEqual(traps, [])
        self.broadcast(b"x" * 1000, replaced)
        self.assertEqual(traps, [])

    def test_an_earlier_object_of_the_same_name_is_refused(self):
        for call, function in [
            (self.allgather, lambda thing: hvd.allgather_object(thing, name="state")),
            (self.broadcast, lambda thing: hvd.broadcast_object(thing, 0, "state")),
        ]:
            earlier = Record()
            with relay(earlier):
                function("old!")
            for is_of_another_init in False, True:
                call("new!", earlier.replay("t"), name="state")
                more = (
                    {"what": "list of sizes", "of_sizes": True}
                    if call == self.allgather
                    else {"of_size": is_of_another_init}
                )
                call("new!", earlier.replay("sz", "t"), name="state", **more)
                hvd.shutdown()
                hvd.init()

    def test_an_object_of_another_name_is_refused(self):
        others = Record()
        with relay(others):
            hvd.allgather_object("old!", name="others")
        self.allgather("new!", others.replay("t"), name="mine")

    def test_a_signature_covers_all_that_tells_objects_apart(self):
        calls = [
            ("broadcast_object", "a", 0, 3),
            ("allgather_object", "a", 0, 3),
            ("broadcast_object", "b", 0, 3),
            ("broadcast_object", "a", 1, 3),
            ("broadcast_object", "a", 0, 4),
        ]
        with mock.patch.object(_objects, "_allgather", lambda data, name, process_set: data), mock.patch.object(
            _objects._ops, "ask", return_value=1
        ):
            with mock.patch("os.urandom", return_value=bytes(16)):
                signatures = [
                    _objects._Call(*call).sign(*of) for call in calls for of in [(0, b"abc"), (1, b"abc"), (0, b"abd")]
                ]
                again = _objects._Call(*calls[0]).sign(0, b"abc")
            signatures.append(_objects._Call(*calls[0]).sign(0, b"abc"))  # a signature with another nonce
        self.assertEqual(again, signatures[0])
        self.assertEqual(len(set(signatures)), len(signatures))

    def test_the_object_of_another_sender_is_refused(self):
        def swapped(name, data):
            part = len(data) // self.size
            return data if name.endswith(".sz") else data[part : 2 * part] + data[:part] + data[2 * part :]

        self.allgather("equal on all ranks", swapped)

    def test_altered_sizes_are_refused(self):
        def longer(name, data):
            return bytes([*data[:4], data[4] ^ 1, *data[5:]]) if name.endswith(".sz") else data

        self.allgather(b"x" * 100, longer, of_sizes=True)

    def test_an_altered_size_is_refused_before_it_is_allocated(self):
        for size in 1 << 40, 0, -1, -2:

            def other(name, data, size=size):
                return data[:4] + struct.pack("<q", size) + data[12:] if name.endswith(".sz") else data

            self.broadcast(b"x" * 100, other, of_size=True)
        self.assertEqual(hvd.broadcast_object(self.rank, 0, name="precious"), 0)

    def test_a_list_of_sizes_that_lacks_ranks_is_refused(self):
        def mine_alone(name, data):
            return data[-(len(data) // self.size) :]  # the part of the last rank

        self.allgather(b"x" * 100, mine_alone, "list of sizes", of_sizes=True)

    def test_the_key_is_the_same_on_all_ranks_and_in_no_other_job(self):
        keys = [_objects._derive_key(purpose) for purpose in (b"objects", b"others")]
        self.assertNotEqual(*keys)
        self.assertEqual(hvd.allgather_object(keys), [keys] * self.size)
        hvd.shutdown()
        with self.assertRaisesRegex(hvd.HorovodInternalError, "init"):
            _objects._derive_key(b"objects")
        hvd.init()
        self.assertNotIn(_objects._derive_key(b"objects"), keys)


if __name__ == "__main__":
    main()
