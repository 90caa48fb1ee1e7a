#!/usr/bin/python3 -B
"""A process with the variables of an initialised rank that is not this rank is refused at once with a message that
names the rank. Other child processes may call hvd.init()."""

from harness import *

WORKER = WORKERS / "child_rank.py"
REFUSED = r"this process is a child of rank {} \(process \d+\), which has called hvd.init\(\): only one process"


def run(what, ranks=2, program=PYTHON, **more):
    job = Job("-np", ranks, program, WORKER, what, **more)
    job.ends_with(0)
    return job


def test_a_spawned_child_that_imports_hvd_init_is_refused_at_once():
    for who in ("one", "all"):
        job = run(f"spawn-{who}")
        for rank in range(2):
            expect(f"rank {rank} of 2 sum 3" in job.out, job.describe())
        for rank in range(1 if who == "one" else 2):
            expect(re.search(REFUSED.format(rank), job.out + job.err), job.describe())
        expect("of 2 as a child" not in job.out, "children form a job\n" + job.describe())
        took = [float(each) for each in re.findall(r"the child ended after ([\d.]+) s", job.out)]
        expect(len(took) == (1 if who == "one" else 2) and max(took) < 20, job.describe())


def test_one_rank_alone_has_one_process():
    for what, words in (
        ("spawn-all", REFUSED.format(0)),
        ("beside", r"another process of this host \(process \d+\) is rank 0 of this job already"),
    ):
        job = run(what, ranks=1)
        expect(len(re.findall(words, job.out + job.err)) == 1, job.describe())


def test_children_that_may_be_ranks():
    """A parent without init; a parent after shutdown, also with forked workers; a job inside a rank; and a second init
    of the same process."""
    for what in ("wrapper", "shut-down", "forked", "run", "again"):
        job = run(what)
        for rank in range(2):
            expect(f"rank {rank} of 2 sum 3" in job.out, f"{what}: {job.describe()}")
        expect("only one process" not in job.out + job.err, job.describe())


def test_a_child_without_the_descriptor_of_pmi_is_refused_and_names_the_rank():
    """subprocess and multiprocessing close the descriptor, and a rank closes it for programs that it starts."""
    hydra = shutil.which("mpiexec.hydra", path="/usr/bin")
    if hydra is None:
        raise Skip("there is no mpiexec.hydra: packaging/packages-test.txt names its package")
    job = Job("-launcher", "fork", "-np", 2, PYTHON, WORKER, "spawn-all", program=hydra)
    job.ends_with(0)
    for rank in range(2):
        expect(f"rank {rank} of 2 sum 3" in job.out, job.describe())
        words = rf"Error: pmi: descriptor \d+ \(PMI_FD\), by which rank {rank} asks .* close_fds=False"
        expect(len(re.findall(words, job.err)) == 1, job.describe())


def test_a_program_in_c_that_starts_itself():
    if shutil.which("cc") is None:
        raise Skip("there is no cc")
    folder = scratch()
    (folder / "again.c").write_text(r"""
#include <horovod/horovod.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int count, char** arguments) {
  char error[1024] = "";
  if (hvd_init(NULL, error, sizeof error) != HVD_OK) {
    printf("refused: %s\n", error);
    return 3;
  }
  if (count > 1) return 0;
  const pid_t child = fork();
  if (child == 0) execl(arguments[0], arguments[0], "child", (char*)NULL);
  int status = 0;
  waitpid(child, &status, 0);
  printf("rank %d: the child ended with %d\n", hvd_rank(), WEXITSTATUS(status));
  return hvd_shutdown(error, sizeof error);
}
""")
    subprocess.run(
        [
            "cc",
            "-o",
            folder / "again",
            folder / "again.c",
            f"-I{ROOT}/include",
            f"-I{BUILD}/include",
            f"-L{BUILD}/lib",
            "-lhorovod",
            f"-Wl,-rpath,{BUILD}/lib",
        ],
        check=True,
    )
    job = Job("-np", 2, folder / "again")
    job.ends_with(0)
    for rank in range(2):
        expect(
            f"rank {rank}: the child ended with 3" in job.out
            and re.search("refused: " + REFUSED.format(rank), job.out),
            job.describe(),
        )


if __name__ == "__main__":
    main()
