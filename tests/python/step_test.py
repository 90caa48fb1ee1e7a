"""The transitions of a distributed optimizer's step: each pair of states, and the sequences of programs."""

import importlib.util
import pathlib
import sys
import threading
import unittest

# Loads the module without the package, which imports torch.
_path = pathlib.Path(sys.argv.pop(1)) / "horovod" / "torch" / "_step.py"
_spec = importlib.util.spec_from_file_location("_step", _path)
step = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(step)
State = step.State

# Next states of each state. I: IDLE, S: STEPPED, C: READ, D: REDUCED, P: PASS, R: READY, F: IN_FLIGHT, N: INTERRUPTED.
LETTERS = dict(zip("ISCDPRFN", State))
TABLE = {"I": "ISP", "S": "ISP", "C": "ISP", "D": "ISP", "P": "ISCDRFN", "R": "PFN", "F": "PN", "N": "PN"}

# Sequences of a program, and their transitions from IDLE.
WALKS = {
    "small gradients, step": "PRPDS",
    "large gradients, step, zero_grad": "PFPDSI",
    "zero_grad of a pass that completes no bucket": "PI",
    "clipping, step": "PFPCS",
    "clipping, one more pass, step": "PFPCPFPDS",
    "synchronize, skip_synchronize": "PFPDS",
    "a rank without gradients": "PFPDS",
    "a signal in the wait, twice": "PFNNPDS",
    "a signal in a step of small gradients": "PRPNPDS",
    "an error of a request, zero_grad": "PFPI",
    "a step that GradScaler skips": "PFPCSS",
}


def at(state):
    """Returns a step in that state."""
    made = step.Step()
    made.state = state
    return made


class StepTest(unittest.TestCase):
    def test_the_table_has_these_moves_and_no_others(self):
        for source, letters in TABLE.items():
            for target in LETTERS:
                made = at(LETTERS[source])
                if target in letters:
                    made.to(LETTERS[target])
                    self.assertIs(made.state, LETTERS[target])
                    continue
                words = [LETTERS[letter].name.lower().replace("_", " ") for letter in (source, target)]
                with self.assertRaisesRegex(AssertionError, f"are {words[0]} cannot become {words[1]}: call"):
                    made.to(LETTERS[target])
                self.assertIs(made.state, LETTERS[source])

    def test_the_table_has_the_moves_of_programs(self):
        for what, letters in WALKS.items():
            made = step.Step()
            for letter in letters:
                with self.subTest(what, state=made.state.name, to=letter):
                    made.to(LETTERS[letter])

    def test_gradients_of_a_pass_remember_that_they_grow_on_reduced_ones(self):
        for before in (step.READ, step.REDUCED):
            made = at(before)
            made.rise(step.PASS)
            made.rise(step.PASS)
            made.to(step.IN_FLIGHT)
            made.to(step.PASS)  # after a failure
            self.assertIs(made.reduced(), before)
            made.end(step.IDLE)
            made.rise(step.PASS)
            self.assertIs(made.reduced(), step.IDLE)

    def test_passes_of_several_threads_move_at_once(self):
        interval = sys.getswitchinterval()
        self.addCleanup(sys.setswitchinterval, interval)
        sys.setswitchinterval(1e-6)
        steps, errors, meet = [step.Step() for _ in range(10_000)], [], threading.Barrier(4)

        def passes():
            meet.wait()
            for made in steps:
                for state in (step.PASS, step.READY, step.IN_FLIGHT):
                    try:
                        made.rise(state)
                    except AssertionError as error:
                        errors.append(error)

        threads = [threading.Thread(target=passes) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(errors, [])
        self.assertTrue(all(made.state is step.IN_FLIGHT for made in steps))

    def test_an_end_drops_what_belongs_to_the_step(self):
        made = at(step.STEPPED)
        made.stepped, made.has_passed, made.has_read_none = object(), True, True
        made.end(step.STEPPED)
        self.assertEqual((made.stepped, made.has_passed, made.has_read_none), (None, False, False))


if __name__ == "__main__":
    unittest.main()
