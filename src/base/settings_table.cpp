#include "base/settings.h"

namespace hvd {
namespace {

using enum SettingType;

constexpr char kGeneral[] = "general";
constexpr char kSsh[] = "SSH arguments";
constexpr char kHost[] = "host arguments";
constexpr char kEnvironment[] = "environment arguments";
constexpr char kOutput[] = "output arguments";
constexpr char kEnding[] = "arguments about the end";
constexpr char kIdentity[] = "identity of a worker (set by the launcher)";
constexpr char kTune[] = "tuneable parameter arguments";
constexpr char kAutotune[] = "autotune arguments";
constexpr char kStall[] = "stall check arguments";
constexpr char kTimeline[] = "timeline arguments";
constexpr char kLibrary[] = "library arguments";
constexpr char kController[] = "controller arguments";
constexpr char kLogging[] = "logging arguments";

constexpr char kForOriginal[] =
    "no effect here: it reaches only ranks that run the original Horovod, as this variable";

constexpr Setting kTable[] = {
    {"num_proc", "-np,--num-proc", "", "", kInt, "", kGeneral,
     "number of ranks to start; at most the slots of the hosts", "", "-n,--n,--np"},
    {"help", "-h,--help", "", "", kFlag, "0", kGeneral, "show this and exit"},
    {"check_build", "-cb,--check-build", "", "", kFlag, "0", kGeneral,
     "show which frameworks, controllers and tensor operations work here, or on the hosts of -H, "
     "and exit; frameworks by the command's Python, where one is given; with --verbose what was "
     "found, why not, and what would help"},
    {"json", "--json", "", "", kFlag, "0", kGeneral, "print what --check-build finds as JSON"},
    {"require", "--require", "", "", kText, "", kGeneral,
     "as --check-build, with exit code 1 unless all of these rows work, such as MPI,PyTorch"},
    {"version", "-v,--version", "", "", kFlag, "0", kGeneral, "show the version and exit"},
    {"verbose", "--verbose", "", "", kFlag, "0", kGeneral, "say what is done, and why"},
    {"dry_run", "--dry-run", "", "", kFlag, "0", kGeneral,
     "show the plan as JSON, or with --mpi and --jsrun their command line, and start nothing"},
    {"config_file", "--config-file", "", "", kText, "", kGeneral,
     "YAML file of settings; flags win over it, it wins over the environment"},
    {"completion", "--completion", "", "", kText, "", kGeneral,
     "print what completes these flags in a shell, bash, zsh or fish, and exit"},
    {"manual", "--manual", "", "", kText, "", kGeneral,
     "print all settings as a manual page, man or markdown, and exit"},
    {"disable_cache", "--disable-cache", "", "", kFlag, "0", kGeneral,
     "no effect: every start looks at all hosts again, and keeps no cache of what it finds"},
    {"start_timeout", "--start-timeout", "", "HOROVOD_START_TIMEOUT", kDouble, "30", kGeneral,
     "seconds that hosts and ranks have to come up"},
    {"lease", "--lease", "", "HOROVOD_LEASE", kDouble, "60", kGeneral,
     "seconds after which a host that lost its link to the launcher ends its ranks"},
    {"insecure_compat", "--insecure-compat", "", "", kFlag, "0", kGeneral,
     "let Horovod's own workers meet by their unsigned requests, on the loopback of each host"},
    {"pmix", "--pmix", "", "HOROVOD_PMIX", kFlag, "1", kGeneral,
     "programs of MPI are one world, where all hosts have libpmix; --no-pmix starts ranks without",
     "--no-pmix"},
    {"listen", "--listen", "", "", kText, "", kGeneral,
     "[HOST]:PORT where hosts join by `horovod-agent --join`, instead of being reached"},
    {"port_range", "--port-range", "", "HOROVOD_PORT_RANGE", kText, "", kGeneral,
     "FIRST-LAST: whatever listens, on every host, does so at a port of these that is free"},
    {"network_interfaces", "--network-interfaces", "", "HOROVOD_NETWORK_INTERFACES", kText, "",
     kGeneral,
     "interfaces and networks by which hosts may meet, such as eth0,10.0.0.0/8,^docker0; default "
     "all, whichever answers",
     "", "--network-interface"},
    {"token_file", "--token-file", "", "", kText, "", kGeneral,
     "file with the token of hosts that join, in hexadecimal digits: yours and closed to others, "
     "or "
     "root's and open to a group; created where it is missing"},
    {"token_fd", "--token-fd", "", "", kInt, "", kGeneral,
     "inherited descriptor to read the token from, such as a pipe's, in place of --token-file"},
    {"tls_cert", "--tls-cert", "", "", kText, "", kGeneral,
     "PEM file of certificates: hosts join by TLS, with horovod-agent --join https://HOST:PORT"},
    {"tls_key", "--tls-key", "", "", kText, "", kGeneral, "PEM file with the key of --tls-cert"},

    {"env", "-x,--env", "", "", kList, "", kEnvironment,
     "variable for the ranks besides this shell's: NAME, NAME=VALUE or 'NAME*'; may be given "
     "often"},
    {"env_file", "--env-file", "", "", kText, "", kEnvironment,
     "file with a NAME=VALUE on each line, for the ranks"},
    {"omp_default", "--omp-default", "", "HOROVOD_OMP_DEFAULT", kFlag, "1", kEnvironment,
     "ranks that share a host get OMP_NUM_THREADS, its cores divided by them, unless that or MKL's "
     "or "
     "OpenBLAS's is set; --no-omp-default sets nothing",
     "--no-omp-default"},
    {"no_env", "--no-env", "", "", kFlag, "0", kEnvironment,
     "ranks get nothing of this shell's environment but what -x and --env-file name"},

    {"stdin", "--stdin", "", "", kText, "0", kOutput,
     "which ranks read what comes on standard input: 0, all or none"},

    {"output_filename", "--output-filename", "", "", kText, "", kOutput,
     "directory that also gets the output, as rank.N/stdout and rank.N/stderr"},
    {"prefix_timestamp", "-prefix-timestamp,--prefix-output-with-timestamp", "", "", kFlag, "0",
     kOutput, "begin each line of output with the time", "",
     "--prefix-timestamp,--timestamp-output"},
    {"tag", "--tag", "", "", kText, "", kOutput,
     "what stands before each line of output, such as '{host}/{rank}'; also {local_rank} and "
     "{stream}; none: nothing"},
    {"only_rank", "--only-rank", "", "", kText, "", kOutput,
     "show only the output of these ranks, such as 0,3-5"},
    {"fold", "--fold", "", "", kFlag, "0", kOutput,
     "show a line that several ranks say within a moment once, as [0-3,5]<stdout>:"},
    {"log_format", "--log-format", "", "", kText, "text", kOutput,
     "text, or json: each line of output as an object"},

    {"on_failure", "--on-failure", "", "", kText, "kill", kEnding,
     "what the other ranks do when one fails: kill ends them, wait lets them end by themselves"},
    {"kill_grace", "--kill-grace", "", "HOROVOD_KILL_GRACE", kDouble, "2", kEnding,
     "seconds between the end signal and SIGKILL for ranks that are ended"},
    {"end_signal", "--end-signal", "", "", kText, "TERM", kEnding,
     "signal that ranks get when their job ends, TERM or INT, which Python raises as "
     "KeyboardInterrupt"},
    {"timeout", "--timeout", "", "", kDouble, "", kEnding,
     "seconds after which the job is ended, with exit code 124"},

    {"store_fd", "--store-fd", "", "", kInt, "", kGeneral,
     "inherited Unix socket of a program that starts this launcher, such as horovod.run: it gets "
     "the "
     "job's secret, and then its store"},
    {"remote_init", "--remote-init", "", "", kText, "", kGeneral,
     "shell command that is run once on each host, such as 'module load x', whose environment the "
     "ranks get"},
    {"max_restarts", "--max-restarts", "", "", kInt, "0", kGeneral,
     "how many times a job that failed is started again"},
    {"spares", "--spares", "", "", kInt, "0", kGeneral,
     "the last N hosts are held back, to take the places of hosts that fail"},
    {"stage", "--stage", "", "", kText, "", kGeneral,
     "file or directory that is copied to every host for the job, where its ranks find it"},
    {"wdir", "--wdir", "", "", kText, "", kGeneral,
     "working directory of the ranks on all hosts; default this one", "", "-wdir,-wd,--wd,--chdir"},
    {"ssh_port", "-p,--ssh-port", "", "", kInt, "", kSsh, "port of the hosts' sshd"},
    {"launch_agent", "--launch-agent", "", "", kText, "", kSsh,
     "command that gives a stream to a host in place of ssh, such as 'docker exec -i {host}'"},
    {"ssh_command", "--ssh-command", "", "", kText, "", kSsh,
     "ssh program and its flags, such as 'ssh -F FILE', in place of what this launcher does "
     "itself"},
    {"ssh_identity_file", "-i,--ssh-identity-file", "", "", kText, "", kSsh,
     "private key to authenticate with"},

    {"hosts", "-H,--hosts", "", "", kText, "", kHost,
     "hosts and slots, such as a:4,b:4 or n[01-16]:8; default what a scheduler gave, else "
     "localhost",
     "", "--host,-host,-hosts"},
    {"hostfile", "-hostfile,--hostfile", "", "", kText, "", kHost,
     "file with a host on each line, such as 'a slots=4'; - is standard input", "",
     "--machinefile,-machinefile,-f"},
    {"slots_per_host", "--slots-per-host", "", "", kInt, "1", kHost,
     "slots of each host that is given without a number of them", "",
     "--nproc-per-node,--nproc_per_node,-ppn,--ppn,--npernode,-npernode,--ntasks-per-node"},
    {"nnodes", "--nnodes", "", "", kInt, "", kHost, "use only the first N hosts"},

    {"agent_dir", "", "", "HOROVOD_AGENT_DIR", kText, "", kGeneral,
     "directory on the hosts that keeps the agent"},
    {"library", "", "", "HOROVOD_LIBRARY", kText, "", kGeneral,
     "path of libhorovod.so that the Python package loads"},
    {"torch_process_group", "", "", "HOROVOD_TORCH_PROCESS_GROUP", kFlag, "1", kGeneral,
     "a script that makes DistributedDataParallel modules and no process group is given one"},
    {"jax_ffi", "", "", "HOROVOD_JAX_FFI", kFlag, "1", kGeneral,
     "compiled programs of JAX call the runtime by XLA's FFI, where it is a known one; else by "
     "Python"},
    {"plugin_path", "", "", "HOROVOD_PLUGIN_PATH", kText, "", kGeneral,
     "folders of plugins, separated by colons, before those that came with the library"},

    {"rank", "", "", "HOROVOD_RANK", kInt, "", kIdentity, "global rank"},
    {"size", "", "", "HOROVOD_SIZE", kInt, "", kIdentity, "number of ranks"},
    {"local_rank", "", "", "HOROVOD_LOCAL_RANK", kInt, "", kIdentity, "rank on its host"},
    {"local_size", "", "", "HOROVOD_LOCAL_SIZE", kInt, "", kIdentity, "ranks on its host"},
    {"cross_rank", "", "", "HOROVOD_CROSS_RANK", kInt, "", kIdentity,
     "index of its host among those that have its local rank"},
    {"cross_size", "", "", "HOROVOD_CROSS_SIZE", kInt, "", kIdentity,
     "number of hosts that have its local rank"},
    {"hostname", "", "", "HOROVOD_HOSTNAME", kText, "", kIdentity, "host, as the plan names it"},
    {"job", "", "", "HOROVOD_JOB_ID", kText, "", kIdentity, "job, as 16 hexadecimal digits"},
    {"generation", "", "", "HOROVOD_GENERATION", kInt, "0", kIdentity, "membership epoch"},
    {"store", "", "", "HOROVOD_STORE", kText, "", kIdentity,
     "where the store is: unix:/path, unix:@name, tcp:host:port, https://host:port or agent:@name"},
    {"store_ca", "", "", "HOROVOD_STORE_CA", kText, "", kIdentity,
     "PEM file of the authorities that may sign its certificate; unset: those of the system"},
    {"job_secret", "", "", "HOROVOD_JOB_SECRET", kText, "", kIdentity,
     "secret of the job, in hexadecimal digits"},
    {"rendezvous_address", "", "", "HOROVOD_GLOO_RENDEZVOUS_ADDR", kText, "", kIdentity,
     "address of the rendezvous server when HOROVOD_STORE is unset"},
    {"rendezvous_port", "", "", "HOROVOD_GLOO_RENDEZVOUS_PORT", kInt, "", kIdentity, "its port"},

    {"fusion_threshold", "--fusion-threshold-mb", "params.fusion_threshold_mb",
     "HOROVOD_FUSION_THRESHOLD", kInt, "134217728", kTune,
     "size of a batch of packed tensors at most, in MiB (in the variable, bytes); 0: no packing",
     "", "", 1 << 20},
    {"cycle_time", "--cycle-time-ms", "params.cycle_time_ms", "HOROVOD_CYCLE_TIME", kDouble, "1",
     kTune, "milliseconds that the batching window stays open at most"},
    {"disable_group_fusion", "", "", "HOROVOD_DISABLE_GROUP_FUSION", kFlag, "0", kTune,
     "a grouped operation shares its batch with nothing else"},
    {"cache_capacity", "--cache-capacity", "params.cache_capacity", "HOROVOD_CACHE_CAPACITY", kInt,
     "1024", kTune, "entries of the response cache; 0 switches it off"},

    {"hierarchical_allreduce", "--hierarchical-allreduce", "params.hierarchical_allreduce",
     "HOROVOD_HIERARCHICAL_ALLREDUCE", kFlag, "0", kTune,
     "of each host only one rank exchanges with other hosts; with NCCL each a part, as with the "
     "torus",
     "--no-hierarchical-allreduce"},
    {"hierarchical_allgather", "--hierarchical-allgather", "params.hierarchical_allgather",
     "HOROVOD_HIERARCHICAL_ALLGATHER", kFlag, "0", kTune, kForOriginal,
     "--no-hierarchical-allgather"},
    {"torus_allreduce", "--torus-allreduce", "params.torus_allreduce", "HOROVOD_TORUS_ALLREDUCE",
     kFlag, "0", kTune, "NCCL sums inside each host, then across them; elsewhere nothing",
     "--no-torus-allreduce"},
    {"whole_limit", "", "", "HOROVOD_ALLREDUCE_WHOLE_LIMIT", kInt, "0", kTune,
     "bytes up to which a few hosts exchange whole allreduces in one hop; 0: as measured best"},
    {"doubling_limit", "", "", "HOROVOD_ALLREDUCE_DOUBLING_LIMIT", kInt, "0", kTune,
     "bytes up to which hosts double what they know of an allreduce in each hop; 0: as measured "
     "best"},
    {"ring_from", "", "", "HOROVOD_ALLREDUCE_RING_FROM", kInt, "0", kTune,
     "bytes from which many hosts allreduce around a ring; 0: as measured best"},

    {"autotune", "--autotune", "autotune.enabled", "HOROVOD_AUTOTUNE", kFlag, "0", kAutotune,
     "find good parameters while the job runs; those that are set stay", "--no-autotune"},
    {"autotune_log", "--autotune-log-file", "autotune.log_file", "HOROVOD_AUTOTUNE_LOG", kText, "",
     kAutotune, "file of rank 0 that lists what was tried, with its score, the best at its end"},
    {"autotune_warmup_samples", "--autotune-warmup-samples", "autotune.warmup_samples",
     "HOROVOD_AUTOTUNE_WARMUP_SAMPLES", kInt, "3", kAutotune, "samples that are thrown away first"},
    {"autotune_steps_per_sample", "--autotune-steps-per-sample", "autotune.steps_per_sample",
     "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", kInt, "10", kAutotune,
     "steps of the training that a sample takes"},
    {"autotune_points", "--autotune-bayes-opt-max-samples", "autotune.bayes_opt_max_samples",
     "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", kInt, "20", kAutotune,
     "sets of parameters that are tried at most"},
    {"autotune_noise", "--autotune-gaussian-process-noise", "autotune.gaussian_process_noise",
     "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", kDouble, "0.8", kAutotune,
     "share of the scores' spread that may be chance, from 0 to 1"},

    {"stall_check_disable", "--no-stall-check", "stall_check.enabled",
     "HOROVOD_STALL_CHECK_DISABLE", kFlag, "0", kStall,
     "do not look for work that some ranks wait for and others never submit", "--stall-check", "",
     1, true},
    {"stall_check_time", "--stall-check-warning-time-seconds", "stall_check.warning_time_seconds",
     "HOROVOD_STALL_CHECK_TIME_SECONDS", kDouble, "60", kStall,
     "seconds after which waiting work is reported with the ranks that are missing; 0: never"},
    {"stall_shutdown_time", "--stall-check-shutdown-time-seconds",
     "stall_check.shutdown_time_seconds", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", kDouble, "0",
     kStall, "seconds after which waiting work ends the job; 0: never"},
    {"stall_report", "--stall-report", "stall_check.report", "HOROVOD_STALL_REPORT", kText, "",
     kStall, "file that also gets each report of waiting work, as a line of JSON"},

    {"timeline", "--timeline-filename", "timeline.filename", "HOROVOD_TIMELINE", kText, "",
     kTimeline, "file at rank 0 that gets a Chrome trace of all ranks; DYNAMIC: none yet"},
    {"timeline_mark_cycles", "--timeline-mark-cycles", "timeline.mark_cycles",
     "HOROVOD_TIMELINE_MARK_CYCLES", kFlag, "0", kTimeline, "mark each batching window in it",
     "--no-timeline-mark-cycles"},

    {"bootstrap", "", "", "HOROVOD_BOOTSTRAP", kText, "", kLibrary,
     "source of the rank where another launcher started the process: pmix, pmi, slurm, mpi, or "
     "none for "
     "independent processes; unset: the first that knows"},
    {"controller", "", "", "HOROVOD_CONTROLLER", kText, "", kLibrary,
     "what carries messages between ranks: mpi; gloo, or unset: the built-in one"},
    {"cpu_operations", "", "", "HOROVOD_CPU_OPERATIONS", kText, "", kLibrary,
     "backend for tensors in host memory: mpi, libgloo or ccl; gloo, or unset: the built-in one"},
    {"gpu_operations", "", "", "HOROVOD_GPU_OPERATIONS", kText, "", kLibrary,
     "backend for tensors in the memory of GPUs: nccl; without it, or with a backend for host "
     "memory, "
     "they "
     "go through that"},
    {"nccl_library", "", "", "HOROVOD_NCCL_LIBRARY", kText, "", kLibrary,
     "path of NCCL or RCCL; unset: what the process has, else libnccl.so.2 or librccl.so.1"},
    {"cuda_library", "", "", "HOROVOD_CUDA_LIBRARY", kText, "", kLibrary,
     "path of the CUDA runtime that NCCL goes with, or of HIP's; unset: the usual one"},
    {"ccl_library", "", "", "HOROVOD_CCL_LIBRARY", kText, "", kLibrary,
     "path of oneCCL; unset: what the process has, else libccl.so.1, also of CCL_ROOT or a venv"},
    {"mpi_library", "", "", "HOROVOD_MPI_LIBRARY", kText, "", kLibrary,
     "path of the MPI library to use, Open MPI's or one of MPICH's kin; unset: the usual one"},
    {"mpi_threads_disable", "--mpi-threads-disable", "library_options.mpi_threads_disable",
     "HOROVOD_MPI_THREADS_DISABLE", kFlag, "0", kLibrary, kForOriginal, "--no-mpi-threads-disable"},
    {"num_nccl_streams", "--num-nccl-streams", "library_options.num_nccl_streams",
     "HOROVOD_NUM_NCCL_STREAMS", kInt, "1", kLibrary,
     "streams of each process set with NCCL, each with a communicator; at most 16"},
    {"thread_affinity", "--thread-affinity", "library_options.thread_affinity",
     "HOROVOD_THREAD_AFFINITY", kText, "0", kLibrary, kForOriginal},
    {"gloo_timeout_seconds", "--gloo-timeout-seconds", "library_options.gloo_timeout_seconds",
     "HOROVOD_GLOO_TIMEOUT_SECONDS", kInt, "30", kLibrary, "for ranks that use Gloo"},
    {"tcp", "--tcp", "library_options.tcp", "", kFlag, "0", kLibrary,
     "NCCL stays off InfiniBand, by NCCL_IB_DISABLE=1, and Spectrum MPI by its -tcp"},
    {"mpi_args", "--mpi-args", "", "", kText, "", kLibrary,
     "more flags for mpirun with --mpi, or jsrun's --smpiargs; written as --mpi-args='-x A'"},
    {"binding_args", "--binding-args", "", "", kText, "", kLibrary,
     "in place of the flags by which mpirun with --mpi, or jsrun, binds ranks"},

    {"gloo", "--gloo", "", "", kFlag, "0", kController,
     "this launcher's own agents start the ranks, as they do anyway"},
    {"mpi", "--mpi", "", "", kFlag, "0", kController,
     "the mpirun in PATH starts the ranks: Open MPI's, MPICH's, Intel MPI's or Spectrum MPI's"},
    {"jsrun", "--jsrun", "", "", kFlag, "0", kController, "LSF's jsrun starts the ranks"},

    {"log_level", "--log-level", "logging.level", "HOROVOD_LOG_LEVEL", kText, "warning", kLogging,
     "trace, debug, info, warning, error or fatal"},
    {"log_hide_time", "--log-hide-timestamp,--log-without-timestamp", "logging.with_timestamp",
     "HOROVOD_LOG_HIDE_TIME", kFlag, "0", kLogging, "log lines without time",
     "--no-log-hide-timestamp,--log-with-timestamp", "", 1, true},
};

constexpr const char* kOtherVariables[] = {
    // Set by agents, for ranks and helpers.
    "HOROVOD_INTERFACE",
    "HOROVOD_STAGE_DIR",
    "HOROVOD_PMIX_HOSTS",
    "HOROVOD_PMIX_RANKS",
    // The original's, at run time and for its build.
    "HOROVOD_ADASUM_MPI_CHUNK_SIZE",
    "HOROVOD_BATCH_D2D_MEMCOPIES",
    "HOROVOD_CCL_BGT_AFFINITY",
    "HOROVOD_CCL_CACHE",
    "HOROVOD_DISABLE_NVTX_RANGES",
    "HOROVOD_DYNAMIC_PROCESS_SETS",
    "HOROVOD_ELASTIC",
    "HOROVOD_ELASTIC_TIMEOUT",
    "HOROVOD_ENABLE_ASYNC_COMPLETION",
    "HOROVOD_ENABLE_XLA_OPS",
    "HOROVOD_GLOO_IFACE",
    "HOROVOD_SECRET_KEY",
    "HOROVOD_GPU_ALLGATHER",
    "HOROVOD_GPU_ALLREDUCE",
    "HOROVOD_GPU_ALLTOALL",
    "HOROVOD_GPU_BROADCAST",
    "HOROVOD_GPU_REDUCESCATTER",
    "HOROVOD_WITH_GLOO",
    "HOROVOD_WITHOUT_GLOO",
    "HOROVOD_WITH_MPI",
    "HOROVOD_WITHOUT_MPI",
    "HOROVOD_WITH_MXNET",
    "HOROVOD_WITHOUT_MXNET",
    "HOROVOD_WITH_PYTORCH",
    "HOROVOD_WITHOUT_PYTORCH",
    "HOROVOD_WITH_TENSORFLOW",
    "HOROVOD_WITHOUT_TENSORFLOW",
};

}  // namespace

std::span<const Setting> all_settings() { return kTable; }
std::span<const char* const> other_variables() { return kOtherVariables; }

}  // namespace hvd
