# ruff: noqa: F403, F405
# The names of Spack come from its package module.
from spack.package import *


class Horovodrun(CMakePackage):
    """Launcher, rendezvous server and allreduce runtime for distributed training. Recipe, never run.

    The package gives the Python package horovod, and conflicts with py-horovod, the original.
    """

    homepage = "https://horovodrun.invalid"
    git = "file:///CLONE"

    license("Apache-2.0")

    # In a clone: spack dev-build horovodrun@main
    version("main", branch="main")

    variant("pmix", default=True, description="Find ranks that srun and mpirun started, by PMIx")

    depends_on("cxx", type="build")
    depends_on("c", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("boost", type="build")
    depends_on("cli11", type="build")
    depends_on("eigen", type="build")
    depends_on("nlohmann-json", type="build")
    depends_on("spdlog", type="build")
    depends_on("libssh")
    depends_on("openssl@3:")
    depends_on("pmix@3:5", when="+pmix")
    depends_on("python@3.8:", type=("build", "link", "run"))
    depends_on("py-cloudpickle", type=("build", "run"))
    depends_on("py-numpy", type=("build", "run"))
    depends_on("yaml-cpp")

    extends("python")
    conflicts("py-horovod")
    generator("ninja")

    def cmake_args(self):
        return [
            self.define("BUILD_TESTING", False),
            # Spack builds OpenSSL without static libraries.
            self.define("HVD_STATIC_AGENT", "OFF"),
            self.define("HVD_PYTHON_DIR", python_platlib),
        ]

    def test_ranks(self):
        """Two ranks start and end."""
        which(self.prefix.bin.horovodrun)("-np", "2", "true")
