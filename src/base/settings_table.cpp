#include "base/settings.h"

namespace hvd {
namespace {

using enum SettingType;

// Topics of --help, in its order.
constexpr char kJob[] = "job";
constexpr char kHosts[] = "hosts";
constexpr char kElastic[] = "elastic";
constexpr char kSsh[] = "ssh";
constexpr char kNetwork[] = "network";
constexpr char kJoin[] = "join";
constexpr char kEnvironment[] = "environment";
constexpr char kOutput[] = "output";
constexpr char kEnd[] = "end";
constexpr char kLauncher[] = "launcher";
constexpr char kTuning[] = "tuning";
constexpr char kAutotune[] = "autotune";
constexpr char kStall[] = "stall";
constexpr char kTimeline[] = "timeline";
constexpr char kLibraries[] = "libraries";
constexpr char kLogging[] = "logging";
constexpr char kQuestions[] = "questions";
constexpr char kIdentity[] = "identity";

constexpr char kForOriginal[] =
    "No effect here: the flag reaches only ranks that run the original Horovod, as this variable.";
constexpr char kIgnored[] = "No effect here: accepted because jobs of the original Horovod set it.";

constexpr Setting kTable[] = {
    {"num_proc", "-np,--num-proc", "", "", kInt, "N", "", kJob,
     "Number of ranks, at most the hosts' slots.", "", "-n,--n,--np"},
    {"config_file", "--config-file", "", "", kText, "FILE", "", kJob,
     "YAML file of settings. Flags win over the file, and the file wins over the environment."},
    {"wdir", "--wdir", "", "", kText, "DIR", "", kJob,
     "Working directory of the ranks on all hosts; default the current one.", "",
     "-wdir,-wd,--wd,--chdir"},
    {"stage", "--stage", "", "", kText, "PATH", "", kJob,
     "Copy a file or directory to every host before the job starts; the ranks find it there."},
    {"remote_init", "--remote-init", "", "", kText, "COMMAND", "", kJob,
     "Shell command to run once on each host, such as 'module load x'; the ranks get its "
     "environment."},
    {"start_timeout", "--start-timeout", "", "HOROVOD_START_TIMEOUT", kDouble, "SECONDS", "30",
     kJob, "Time to start hosts and connect ranks."},
    {"init_timeout", "--init-timeout", "", "HOROVOD_INIT_TIMEOUT", kDouble, "SECONDS", "600", kJob,
     "Time that a rank has to call hvd.init() once another one waits for it there."},
    {"dry_run", "--dry-run", "", "", kFlag, "", "0", kJob,
     "Print the plan, or the command line of --mpi and --jsrun, and start nothing."},
    {"verbose", "--verbose", "", "", kFlag, "", "0", kJob,
     "Print the launch's steps, times and reasons."},
    {"detach", "--detach", "", "", kFlag, "", "0", kJob,
     "Return when all ranks run; the job goes on without the terminal. See horovodrun attach."},
    {"max_restarts", "--max-restarts", "", "", kInt, "N", "0", kJob,
     "Restarts of a failed job (3 if elastic)."},
    {"spares", "--spares", "", "", kInt, "N", "0", kJob,
     "Hold back the last N hosts to replace hosts that fail."},
    // Only horovod.run gives this flag, so no list names it.
    {"store_fd", "", "", "", kInt, "FD", "", kJob,
     "Inherited Unix socket of the program that starts this launcher; it gets the job's secret and "
     "store.",
     "", "--store-fd"},
    {"disable_cache", "--disable-cache", "", "", kFlag, "", "0", kJob,
     "No effect: the launcher checks all hosts at every start and keeps no cache."},
    {"agent_dir", "", "", "HOROVOD_AGENT_DIR", kText, "DIR", "", kJob,
     "Directory on the hosts that keeps the agent; unused where other users can change it."},

    {"hosts", "-H,--hosts", "", "", kText, "HOST:SLOTS,...", "", kHosts,
     "Hosts and slots, such as a:4,b:4 or n[01-16]:8; default: the scheduler's, or localhost.", "",
     "--host,-host,-hosts"},
    {"hostfile", "-hostfile,--hostfile", "", "", kText, "FILE", "", kHosts,
     "File with one host per line, such as 'a slots=4'; - is standard input.", "",
     "--machinefile,-machinefile,-f"},
    {"slots_per_host", "--slots-per-host", "", "", kInt, "N|gpu|cpu", "1", kHosts,
     "Slots of each host without a number.", "",
     "--slots,--nproc-per-node,--nproc_per_node,-ppn,--ppn,--npernode,-npernode,--ntasks-per-node"},
    // --slots-per-host gpu sets it.
    {"slots_by", "", "", "", kText, "DEVICE", "", kHosts,
     "Device whose number on each host is that of its slots: gpu, auto or cpu."},
    {"nnodes", "--nnodes", "", "", kInt, "N", "", kHosts, "Use only the first N hosts."},

    {"min_num_proc", "--min-np,--min-num-proc", "", "", kInt, "N", "", kElastic,
     "Number of ranks below which the job pauses, and that makes the job elastic; default -np."},
    {"max_num_proc", "--max-np,--max-num-proc", "", "", kInt, "N", "", kElastic,
     "Largest number of ranks of an elastic job; default: all slots."},
    {"host_discovery_script", "--host-discovery-script", "", "", kText, "COMMAND", "", kElastic,
     "Shell command that prints the hosts that there are now, such as a:4, one per line."},
    {"elastic_timeout", "--elastic-timeout", "", "HOROVOD_ELASTIC_TIMEOUT", kDouble, "SECONDS",
     "600", kElastic, "Time that an elastic job waits for enough slots; 0: the default."},
    {"job_reset_limit", "--reset-limit", "reset_limit", "", kText, "N[/SECONDS]", "", kElastic,
     "Changes of the job's ranks, in all or within SECONDS, after which the next one ends the "
     "job."},
    {"cooldown_range", "--blacklist-cooldown-range", "blacklist_cooldown_range", "", kText, "LO HI",
     "", kElastic,
     "Seconds, from LO on and doubled up to HI, until a failed host is used again; default: "
     "never."},

    {"restart_ranks", "--restart-ranks", "", "", kFlag, "", "0", kElastic,
     "Start a failed rank of an elastic job again on its host, instead of leaving that host out."},
    {"leave_grace", "--leave-grace", "", "", kDouble, "SECONDS", "30", kElastic,
     "Time that the ranks of a host have to commit after SIGTERM to its agent; 0: none."},

    {"ssh_port", "-p,--ssh-port", "", "", kInt, "PORT", "", kSsh, "Port of sshd on the hosts."},
    {"ssh_identity_file", "-i,--ssh-identity-file", "", "", kText, "FILE", "", kSsh,
     "Private key for ssh."},
    {"ssh_command", "--ssh-command", "", "", kText, "COMMAND", "", kSsh,
     "Program and flags to use for ssh, such as 'ssh -F FILE', instead of the built-in client."},
    {"launch_agent", "--launch-agent", "", "", kText, "COMMAND", "", kSsh,
     "Command that opens a stream to a host instead of ssh, such as 'docker exec -i {host}'."},

    {"network_interfaces", "--network-interfaces", "", "HOROVOD_NETWORK_INTERFACES", kText,
     "NAME,...", "", kNetwork,
     "Interfaces and networks that hosts may use, such as eth0,10.0.0.0/8,^docker0; default all.",
     "", "--network-interface"},
    {"port_range", "--port-range", "", "HOROVOD_PORT_RANGE", kText, "FIRST-LAST", "", kNetwork,
     "Ports for everything that listens, on every host."},
    {"link_timeout", "--link-timeout", "", "HOROVOD_LINK_TIMEOUT", kDouble, "SECONDS", "60",
     kNetwork,
     "Time after which a rank that gets no answer from a rank on another host ends the job."},
    {"encrypt", "--encrypt", "", "HOROVOD_ENCRYPT", kFlag, "", "0", kNetwork,
     "Encrypt what ranks on different hosts send to each other, by AES-256-GCM."},

    {"listen", "--listen", "", "", kText, "[HOST]:PORT", "", kJoin,
     "Wait at this address for hosts that join by `horovod-agent --join`."},
    {"token_file", "--token-file", "", "", kText, "FILE", "", kJoin,
     "File with the hexadecimal token of joining hosts, readable only by you, or by a group if "
     "root owns it. Created if missing."},
    {"token_fd", "--token-fd", "", "", kInt, "FD", "", kJoin,
     "Inherited descriptor to read the token from, such as a pipe, instead of --token-file."},
    {"tls_cert", "--tls-cert", "", "", kText, "FILE", "", kJoin,
     "PEM file of certificates: hosts may also join by horovod-agent --join https://HOST:PORT."},
    {"tls_key", "--tls-key", "", "", kText, "FILE", "", kJoin,
     "PEM file with the key of --tls-cert."},
    {"insecure_plaintext", "--insecure-plaintext", "", "", kFlag, "", "0", kJoin,
     "Let hosts join without TLS, by horovod-agent with the same flag: others can read and change "
     "the job."},

    {"env", "-x,--env", "", "", kList, "NAME[=VALUE]", "", kEnvironment,
     "Pass on or set a variable: NAME, NAME=VALUE or 'NAME*'. May be repeated."},
    {"env_file", "--env-file", "", "", kText, "FILE", "", kEnvironment,
     "File of NAME=VALUE lines for the ranks."},
    {"omp_default", "--omp-default", "", "HOROVOD_OMP_DEFAULT", kFlag, "", "1", kEnvironment,
     "Set OMP_NUM_THREADS to the host's cores divided by its ranks, unless it or MKL's or "
     "OpenBLAS's variable is set.",
     "--no-omp-default"},
    {"no_env", "--no-env", "", "", kFlag, "", "0", kEnvironment,
     "Pass on only the variables that -x and --env-file name."},
    {"independent", "--independent", "", "", kFlag, "", "0", kEnvironment,
     "Do not warn if no rank has used its rank: each rank is a run of its own."},
    {"no_torch_env", "--no-torch-env", "", "", kFlag, "", "0", kEnvironment,
     "Start ranks without torchrun's variables, such as RANK and MASTER_ADDR."},

    {"stdin", "--stdin", "", "", kText, "RANKS", "0", kOutput,
     "Ranks that read standard input: 0,3-5, all or none."},
    {"output_filename", "--output-filename", "", "", kText, "DIR", "", kOutput,
     "Directory that also gets the output, as rank.N/stdout and rank.N/stderr."},
    {"spool_dir", "", "", "HOROVOD_SPOOL_DIR", kText, "DIR", "/tmp", kOutput,
     "Directory, on a local disk, of horovodrun-UID, which holds the output of detached jobs."},
    {"prefix_timestamp", "-prefix-timestamp,--prefix-output-with-timestamp", "", "", kFlag, "", "0",
     kOutput, "Begin each line of output with the time.", "",
     "--prefix-timestamp,--timestamp-output"},
    {"tag", "--tag", "", "", kText, "FORMAT", "", kOutput,
     "Prefix of lines: {host}, {rank}, {local_rank}, {stream}, {time}; none: no prefix."},
    {"only_rank", "--only-rank", "", "", kText, "RANKS", "", kOutput,
     "Show only the output of these ranks, such as 0,3-5."},
    {"fold", "--fold", "", "", kFlag, "", "0", kOutput,
     "Print a line that several ranks write at the same time once, as [0-3,5]<stdout>:"},
    {"log_format", "--log-format", "", "", kText, "FORMAT", "text", kOutput,
     "Format of each line of output: text, or json for one object per line."},

    {"on_failure", "--on-failure", "", "", kText, "ACTION", "kill", kEnd,
     "Reaction to a failed rank: kill the other ranks, or wait until they end."},
    {"kill_grace", "--kill-grace", "", "HOROVOD_KILL_GRACE", kDouble, "SECONDS", "2", kEnd,
     "Time between the end signal and SIGKILL."},
    {"end_signal", "--end-signal", "", "", kText, "SIGNAL", "TERM", kEnd,
     "Signal that ends ranks: TERM, or INT, which Python raises as KeyboardInterrupt."},
    {"timeout", "--timeout", "", "", kDouble, "SECONDS", "", kEnd,
     "Limit of the job's time; exit code 124."},
    {"lease", "--lease", "", "HOROVOD_LEASE", kDouble, "SECONDS", "45", kEnd,
     "Time after which a host that lost its link to the launcher ends its ranks; at most "
     "--host-timeout."},
    {"host_timeout", "--host-timeout", "", "", kDouble, "SECONDS", "45", kEnd,
     "Time without an answer after which a host is lost; default: --lease, 3 if elastic, 12 in a "
     "Slurm step."},

    {"gloo", "--gloo", "", "", kFlag, "", "0", kLauncher,
     "Start ranks by built-in agents (default)."},
    {"mpi", "--mpi", "", "", kFlag, "", "0", kLauncher,
     "Start the ranks with the mpirun in PATH: Open MPI, MPICH, Intel MPI or Spectrum MPI."},
    {"jsrun", "--jsrun", "", "", kFlag, "", "0", kLauncher, "Start the ranks with jsrun of LSF."},
    {"mpi_args", "--mpi-args", "", "", kText, "FLAGS", "", kLauncher,
     "More flags for mpirun with --mpi, or for --smpiargs of jsrun; written as --mpi-args='-x A'."},
    {"binding_args", "--binding-args", "", "", kText, "FLAGS", "", kLauncher,
     "Flags that replace those by which mpirun with --mpi, or jsrun, binds ranks."},
    {"pmix", "--pmix", "", "HOROVOD_PMIX", kFlag, "", "1", kLauncher,
     "Make MPI programs one world where all hosts have libpmix; --no-pmix starts ranks without it.",
     "--no-pmix"},
    {"insecure_compat", "--insecure-compat", "", "", kFlag, "", "0", kLauncher,
     "Accept the unsigned requests of Horovod's own workers, on the loopback interface of each "
     "host."},

    {"fusion_threshold", "--fusion-threshold-mb", "params.fusion_threshold_mb",
     "HOROVOD_FUSION_THRESHOLD", kInt, "MIB", "134217728", kTuning,
     "Maximum size of a batch of packed tensors, in MiB (in the variable, bytes); 0: no packing.",
     "", "", 1 << 20},
    {"cycle_time", "--cycle-time-ms", "params.cycle_time_ms", "HOROVOD_CYCLE_TIME", kDouble,
     "MILLISECONDS", "1", kTuning, "Maximum time that the batching window stays open."},
    {"disable_group_fusion", "", "", "HOROVOD_DISABLE_GROUP_FUSION", kFlag, "", "0", kTuning,
     "Give each grouped operation a batch of its own."},
    {"cache_capacity", "--cache-capacity", "params.cache_capacity", "HOROVOD_CACHE_CAPACITY", kInt,
     "N", "1024", kTuning, "Entries of the response cache; 0: no cache."},
    {"hierarchical_allreduce", "--hierarchical-allreduce", "params.hierarchical_allreduce",
     "HOROVOD_HIERARCHICAL_ALLREDUCE", kFlag, "", "0", kTuning,
     "Exchange with other hosts by one rank of each host; with NCCL by all its ranks, a part each.",
     "--no-hierarchical-allreduce"},
    {"hierarchical_allgather", "--hierarchical-allgather", "params.hierarchical_allgather",
     "HOROVOD_HIERARCHICAL_ALLGATHER", kFlag, "", "0", kTuning, kForOriginal,
     "--no-hierarchical-allgather"},
    {"torus_allreduce", "--torus-allreduce", "params.torus_allreduce", "HOROVOD_TORUS_ALLREDUCE",
     kFlag, "", "0", kTuning,
     "Sum with NCCL inside each host, then between hosts. No effect on other backends.",
     "--no-torus-allreduce"},
    {"whole_limit", "", "", "HOROVOD_ALLREDUCE_WHOLE_LIMIT", kInt, "BYTES", "0", kTuning,
     "Largest allreduce that a few hosts exchange in one hop (one-shot); 0: as measured best."},
    {"doubling_limit", "", "", "HOROVOD_ALLREDUCE_DOUBLING_LIMIT", kInt, "BYTES", "0", kTuning,
     "Largest allreduce that hosts exchange by recursive doubling; 0: as measured best."},
    {"ring_from", "", "", "HOROVOD_ALLREDUCE_RING_FROM", kInt, "BYTES", "0", kTuning,
     "Smallest allreduce that many hosts exchange around a ring; 0: as measured best."},
    {"reproducible", "", "", "HOROVOD_REPRODUCIBLE", kFlag, "", "0", kTuning,
     "Sum in one order whatever is packed together: equal runs give equal bits, also from five "
     "hosts "
     "on. Slower there."},

    {"autotune", "--autotune", "autotune.enabled", "HOROVOD_AUTOTUNE", kFlag, "", "0", kAutotune,
     "Search for good parameters while the job runs; parameters that you set stay as they are.",
     "--no-autotune"},
    {"autotune_log", "--autotune-log-file", "autotune.log_file", "HOROVOD_AUTOTUNE_LOG", kText,
     "FILE", "", kAutotune,
     "File on rank 0's host that lists the parameters tried with their scores; the best stands "
     "last."},
    {"autotune_warmup_samples", "--autotune-warmup-samples", "autotune.warmup_samples",
     "HOROVOD_AUTOTUNE_WARMUP_SAMPLES", kInt, "N", "3", kAutotune,
     "Samples to discard at the start."},
    {"autotune_steps_per_sample", "--autotune-steps-per-sample", "autotune.steps_per_sample",
     "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", kInt, "N", "10", kAutotune,
     "Training steps in a sample."},
    {"autotune_points", "--autotune-bayes-opt-max-samples", "autotune.bayes_opt_max_samples",
     "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", kInt, "N", "20", kAutotune,
     "Maximum number of parameter sets to try."},
    {"autotune_noise", "--autotune-gaussian-process-noise", "autotune.gaussian_process_noise",
     "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", kDouble, "RATIO", "0.8", kAutotune,
     "Share of the scores' spread that may be noise, from 0 to 1."},

    {"stall_check_disable", "--no-stall-check", "stall_check.enabled",
     "HOROVOD_STALL_CHECK_DISABLE", kFlag, "", "0", kStall,
     "Do not look for operations that some ranks submit and others never do.", "--stall-check", "",
     1, true},
    {"stall_check_time", "--stall-check-warning-time-seconds", "stall_check.warning_time_seconds",
     "HOROVOD_STALL_CHECK_TIME_SECONDS", kDouble, "SECONDS", "60", kStall,
     "Time until a report names a waiting operation and the missing ranks; 0: never."},
    {"stall_shutdown_time", "--stall-check-shutdown-time-seconds",
     "stall_check.shutdown_time_seconds", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", kDouble, "SECONDS",
     "0", kStall, "Time until a waiting operation ends the job; 0: never."},
    {"stall_report", "--stall-report", "stall_check.report", "HOROVOD_STALL_REPORT", kText, "FILE",
     "", kStall, "File that also gets each report of a stall, as a line of JSON."},

    {"timeline", "--timeline-filename", "timeline.filename", "HOROVOD_TIMELINE", kText, "FILE", "",
     kTimeline,
     "File for a Chrome trace of all ranks, on rank 0's host; DYNAMIC: the program starts it."},
    {"timeline_mark_cycles", "--timeline-mark-cycles", "timeline.mark_cycles",
     "HOROVOD_TIMELINE_MARK_CYCLES", kFlag, "", "0", kTimeline,
     "Mark each batching window in the timeline.", "--no-timeline-mark-cycles"},

    {"library", "", "", "HOROVOD_LIBRARY", kText, "FILE", "", kLibraries,
     "Path of libhorovod.so that the Python package loads."},
    {"plugin_path", "", "", "HOROVOD_PLUGIN_PATH", kText, "DIR:...", "", kLibraries,
     "Folders of plugins to search before those of the library, separated by colons."},
    {"torch_process_group", "", "", "HOROVOD_TORCH_PROCESS_GROUP", kFlag, "", "1", kLibraries,
     "Create torch's default process group for a script that makes DistributedDataParallel modules "
     "without one."},
    {"torch_check_gradients", "", "", "HOROVOD_TORCH_CHECK_GRADIENTS", kFlag, "", "0", kLibraries,
     "Compare gradients at step() with copies from the end of backward, to find every write "
     "between; "
     "costs memory and time."},
    {"reset_limit", "", "", "HOROVOD_RESET_LIMIT", kInt, "N", "1000", kLibraries,
     "Most restarts of Horovod in one call of a function of hvd.elastic.run."},
    {"count_passes", "", "", "HOROVOD_COUNT_PASSES", kFlag, "", "0", kLibraries,
     "Count each backward pass in `iterations` of optimizers of Keras 2, as Horovod 0.28 does, not "
     "each "
     "update."},
    {"jax_ffi", "", "", "HOROVOD_JAX_FFI", kFlag, "", "1", kLibraries,
     "Call the runtime from compiled JAX programs by XLA's FFI where its version is known, else by "
     "Python."},
    {"bootstrap", "", "", "HOROVOD_BOOTSTRAP", kText, "NAME", "", kLibraries,
     "Source of the rank under another launcher: pmix, pmi, slurm, mpi, torch, none (independent); "
     "unset: the first that answers."},
    {"controller", "", "", "HOROVOD_CONTROLLER", kText, "NAME", "", kLibraries,
     "Controller that carries messages between ranks: mpi; gloo or unset: the built-in one."},
    {"cpu_operations", "", "", "HOROVOD_CPU_OPERATIONS", kText, "NAME", "", kLibraries,
     "Backend for tensors in host memory: mpi, libgloo or ccl; gloo or unset: the built-in one."},
    {"gpu_operations", "", "", "HOROVOD_GPU_OPERATIONS", kText, "NAME", "", kLibraries,
     "Backend for tensors in GPU memory: nccl; otherwise the backend for host memory takes them."},
    {"nccl_library", "", "", "HOROVOD_NCCL_LIBRARY", kText, "FILE", "", kLibraries,
     "Path of NCCL or RCCL; unset: the one loaded already, else libnccl.so.2 or librccl.so.1."},
    {"cuda_library", "", "", "HOROVOD_CUDA_LIBRARY", kText, "FILE", "", kLibraries,
     "Path of the CUDA or HIP runtime that belongs to NCCL or RCCL; unset: the usual one."},
    {"ccl_library", "", "", "HOROVOD_CCL_LIBRARY", kText, "FILE", "", kLibraries,
     "Path of oneCCL; unset: the one loaded already, else libccl.so.1, also from CCL_ROOT or a "
     "venv."},
    {"mpi_library", "", "", "HOROVOD_MPI_LIBRARY", kText, "FILE", "", kLibraries,
     "Path of the MPI library, Open MPI or one with MPICH's ABI; unset: the usual one."},
    {"mpi_threads_disable", "--mpi-threads-disable", "library_options.mpi_threads_disable",
     "HOROVOD_MPI_THREADS_DISABLE", kFlag, "", "0", kLibraries, kForOriginal,
     "--no-mpi-threads-disable"},
    {"num_nccl_streams", "--num-nccl-streams", "library_options.num_nccl_streams",
     "HOROVOD_NUM_NCCL_STREAMS", kInt, "N", "1", kLibraries,
     "Streams of each process set with NCCL, each with a communicator; at most 16."},
    {"thread_affinity", "--thread-affinity", "library_options.thread_affinity",
     "HOROVOD_THREAD_AFFINITY", kText, "CORES", "0", kLibraries, kForOriginal},
    {"gloo_timeout_seconds", "--gloo-timeout-seconds", "library_options.gloo_timeout_seconds",
     "HOROVOD_GLOO_TIMEOUT_SECONDS", kInt, "SECONDS", "30", kLibraries,
     "Time limit for ranks that use Gloo."},
    {"gloo_iface", "", "", "HOROVOD_GLOO_IFACE", kText, "INTERFACE", "", kLibraries,
     "Network interface of the backends libgloo and ccl and of workers of the original Horovod; "
     "unset: "
     "found at the start."},
    {"dynamic_process_sets", "", "", "HOROVOD_DYNAMIC_PROCESS_SETS", kText, "0|1", "", kLibraries,
     "No effect here: process sets can always be added during the job."},
    {"enable_async_completion", "", "", "HOROVOD_ENABLE_ASYNC_COMPLETION", kText, "0|1", "",
     kLibraries, kIgnored},
    {"enable_xla_ops", "", "", "HOROVOD_ENABLE_XLA_OPS", kText, "0|1", "", kLibraries, kIgnored},
    {"batch_d2d_memcopies", "", "", "HOROVOD_BATCH_D2D_MEMCOPIES", kText, "0|1", "", kLibraries,
     kIgnored},
    {"disable_nvtx_ranges", "", "", "HOROVOD_DISABLE_NVTX_RANGES", kText, "0|1", "", kLibraries,
     kIgnored},
    {"adasum_mpi_chunk_size", "", "", "HOROVOD_ADASUM_MPI_CHUNK_SIZE", kText, "BYTES", "",
     kLibraries, kIgnored},
    {"ccl_cache", "", "", "HOROVOD_CCL_CACHE", kText, "0|1", "", kLibraries, kIgnored},
    {"tcp", "--tcp", "library_options.tcp", "", kFlag, "", "0", kLibraries,
     "Keep NCCL off InfiniBand by NCCL_IB_DISABLE=1, and Spectrum MPI by its flag -tcp."},

    {"log_level", "--log-level", "logging.level", "HOROVOD_LOG_LEVEL", kText, "LEVEL", "warning",
     kLogging, "Least level of log lines: trace, debug, info, warning, error or fatal."},
    {"log_hide_time", "--log-hide-timestamp,--log-without-timestamp", "logging.with_timestamp",
     "HOROVOD_LOG_HIDE_TIME", kFlag, "", "0", kLogging, "Write log lines without the time.",
     "--no-log-hide-timestamp,--log-with-timestamp", "", 1, true},

    {"help", "-h,--help", "", "", kFlag, "[TOPIC]", "0", kQuestions,
     "Print the common flags, or those of a topic."},
    {"help_all", "--help-all", "", "", kFlag, "", "0", kQuestions,
     "Print all flags and variables and exit."},
    {"version", "-v,--version", "", "", kFlag, "", "0", kQuestions, "Print the version and exit."},
    {"check_build", "-cb,--check-build", "", "", kFlag, "", "0", kQuestions,
     "Print which frameworks, controllers and backends work here, or on the hosts of -H; with "
     "--verbose the reasons."},
    {"json", "--json", "", "", kFlag, "", "0", kQuestions,
     "Print the result of --check-build or --dry-run as JSON."},
    {"require", "--require", "", "", kText, "NAME,...", "", kQuestions,
     "Check the build as --check-build does, and exit with 1 unless all these rows work, such as "
     "MPI,PyTorch."},
    {"completion", "--completion", "", "", kText, "SHELL", "", kQuestions,
     "Print the completion script of a shell (bash, zsh or fish) and exit."},
    {"manual", "--manual", "", "", kText, "FORMAT", "", kQuestions,
     "Print all settings as a manual page (man, environment or markdown) and exit."},

    {"rank", "", "", "HOROVOD_RANK", kInt, "N", "", kIdentity, "Global rank."},
    {"size", "", "", "HOROVOD_SIZE", kInt, "N", "", kIdentity, "Number of ranks."},
    {"local_rank", "", "", "HOROVOD_LOCAL_RANK", kInt, "N", "", kIdentity, "Rank on its host."},
    {"local_size", "", "", "HOROVOD_LOCAL_SIZE", kInt, "N", "", kIdentity,
     "Number of ranks on its host."},
    {"cross_rank", "", "", "HOROVOD_CROSS_RANK", kInt, "N", "", kIdentity,
     "Index of its host among the hosts that have its local rank."},
    {"cross_size", "", "", "HOROVOD_CROSS_SIZE", kInt, "N", "", kIdentity,
     "Number of hosts that have its local rank."},
    {"hostname", "", "", "HOROVOD_HOSTNAME", kText, "HOST", "", kIdentity,
     "Name of its host in the plan."},
    {"job", "", "", "HOROVOD_JOB_ID", kText, "HEX", "", kIdentity,
     "Identifier of the job, 16 hexadecimal digits."},
    {"launcher_version", "", "", "HOROVOD_LAUNCHER_VERSION", kText, "VERSION", "", kIdentity,
     "Version of the launcher: a rank with another major or minor version refuses to start."},
    {"generation", "", "", "HOROVOD_GENERATION", kInt, "N", "0", kIdentity,
     "Number of earlier memberships of the job."},
    {"elastic_process", "", "", "HOROVOD_ELASTIC_PROCESS", kInt, "N", "", kIdentity,
     "Number of this process in an elastic job, whose ranks change."},
    {"elastic", "", "", "HOROVOD_ELASTIC", kFlag, "", "0", kIdentity,
     "Whether Horovod's own launcher runs an elastic job."},
    {"store", "", "", "HOROVOD_STORE", kText, "URL", "", kIdentity,
     "Address of the store: unix:/path, unix:@name, tcp:host:port, https://host:port or "
     "agent:@name."},
    {"store_ca", "", "", "HOROVOD_STORE_CA", kText, "FILE", "", kIdentity,
     "PEM file of the authorities that may sign the store's certificate; unset: those of the "
     "system."},
    {"job_secret", "", "", "HOROVOD_JOB_SECRET", kText, "HEX", "", kIdentity,
     "Secret of the job, in hexadecimal digits."},
    {"rendezvous_address", "", "", "HOROVOD_GLOO_RENDEZVOUS_ADDR", kText, "HOST", "", kIdentity,
     "Address of the rendezvous server, used if HOROVOD_STORE is unset."},
    {"rendezvous_port", "", "", "HOROVOD_GLOO_RENDEZVOUS_PORT", kInt, "PORT", "", kIdentity,
     "Port of the rendezvous server, used if HOROVOD_STORE is unset."},
};

constexpr const char* kOtherVariables[] = {
    // Set by agents, for ranks and helpers.
    "HOROVOD_INTERFACE",
    "HOROVOD_STAGE_DIR",
    "HOROVOD_PMIX_HOSTS",
    "HOROVOD_PMIX_RANKS",
    "HOROVOD_RESULT_KEY",
    // The original's, at run time and for its build.
    "HOROVOD_CCL_BGT_AFFINITY",
    "HOROVOD_SECRET_KEY",
    "HOROVOD_GPU_ALLGATHER",
    "HOROVOD_GPU_ALLREDUCE",
    "HOROVOD_GPU_ALLTOALL",
    "HOROVOD_GPU_BROADCAST",
    "HOROVOD_GPU_REDUCESCATTER",
    "HOROVOD_SPARK_PYTHONPATH",
    "HOROVOD_SPARK_START_TIMEOUT",
    "HOROVOD_SPARK_USE_LOCAL_RANK_GPU_INDEX",
    "HOROVOD_SPARK_WORK_DIR",
    "HOROVOD_CUDA_HOME",
    "HOROVOD_MPI_HOME",
    "HOROVOD_NCCL_HOME",
    "HOROVOD_NCCL_LINK",
    "HOROVOD_ROCM_HOME",
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

constexpr int kMostRanks = 1 << 24;
constexpr int kMostSlots = 1 << 16;

constexpr NumberRange kRanges[] = {
    {"num_proc", 1, kMostRanks},
    {"slots_per_host", 1, kMostSlots},
    {"nnodes", 1, kMostRanks},
    {"min_num_proc", 1, kMostRanks},
    {"max_num_proc", 1, kMostRanks},
    {"elastic_timeout", 0, 1e8},
    {"host_timeout", 0.1, 1e6},
    {"leave_grace", 0, 1e6},
    {"ssh_port", 1, 65535},
    {"start_timeout", 0.1, 1e8},
    {"init_timeout", 0.1, 1e8},
    {"lease", 1, 1e8},
    {"link_timeout", 1, 1e6},
    {"kill_grace", 0, 1e8},
    {"timeout", 0.001, 1e8},
    {"max_restarts", 0, 1e6},
    {"spares", 0, kMostRanks},
    {"token_fd", 0, 1 << 20},
    {"store_fd", 0, 1 << 20},
    {"fusion_threshold", 0, 1ll << 40},
    {"whole_limit", -1, 1ll << 40},
    {"doubling_limit", -1, 1ll << 40},
    {"ring_from", -1, 1ll << 40},
    {"cycle_time", 0, 1e6},
    {"cache_capacity", 0, 1 << 20},
    {"autotune_warmup_samples", 0, 1 << 20},
    {"autotune_steps_per_sample", 0, 1 << 20},
    {"autotune_points", 0, 1 << 20},
    {"autotune_noise", 0, 1},
    {"stall_check_time", 0, 1e8},
    {"stall_shutdown_time", 0, 1e8},
    {"num_nccl_streams", 0, 1 << 20},
    {"gloo_timeout_seconds", 0, 1e8},
    {"reset_limit", 0, 1e9},
};

}  // namespace

std::span<const Setting> all_settings() { return kTable; }
std::span<const NumberRange> all_ranges() { return kRanges; }
std::span<const char* const> other_variables() { return kOtherVariables; }

}  // namespace hvd
