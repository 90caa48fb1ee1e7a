#include "base/settings.h"

namespace hvd {
namespace {

using enum SettingType;

constexpr char kGeneral[] = "general";
constexpr char kSsh[] = "SSH arguments";
constexpr char kHost[] = "host arguments";
constexpr char kIdentity[] = "identity of a worker (set by the launcher)";
constexpr char kTune[] = "tuneable parameter arguments";
constexpr char kAutotune[] = "autotune arguments";
constexpr char kStall[] = "stall check arguments";
constexpr char kTimeline[] = "timeline arguments";
constexpr char kLibrary[] = "library arguments";
constexpr char kLogging[] = "logging arguments";

constexpr Setting kTable[] = {
    {"num_proc", "-np,--num-proc", "", "", kInt, "", kGeneral,
     "number of ranks to start; at most the slots of the hosts", "", "-n,--n,--np"},
    {"help", "-h,--help", "", "", kFlag, "0", kGeneral, "show this and exit"},
    {"check_build", "-cb,--check-build", "", "", kFlag, "0", kGeneral,
     "show which frameworks, controllers and tensor operations work here, and exit"},
    {"version", "-v,--version", "", "", kFlag, "0", kGeneral, "show the version and exit"},
    {"verbose", "--verbose", "", "", kFlag, "0", kGeneral, "say what is done, and why"},
    {"dry_run", "--dry-run", "", "", kFlag, "0", kGeneral,
     "show the plan as JSON and start nothing"},
    {"config_file", "--config-file", "", "", kText, "", kGeneral,
     "YAML file of settings; flags win over it, it wins over the environment"},
    {"completion", "--completion", "", "", kText, "", kGeneral,
     "print what completes these flags in a shell, bash, zsh or fish, and exit"},
    {"manual", "--manual", "", "", kText, "", kGeneral,
     "print all settings as a manual page, man or markdown, and exit"},
    {"disable_cache", "--disable-cache", "", "", kFlag, "0", kGeneral,
     "look at every host again, which is done anyway"},
    {"start_timeout", "--start-timeout", "", "HOROVOD_START_TIMEOUT", kDouble, "30", kGeneral,
     "seconds that hosts and ranks have to come up"},
    {"lease", "--lease", "", "HOROVOD_LEASE", kDouble, "60", kGeneral,
     "seconds after which a host that lost its link to the launcher ends its ranks"},
    {"insecure_compat", "--insecure-compat", "", "", kFlag, "0", kGeneral,
     "let Horovod's own workers meet by their unsigned requests, on the loopback of each host"},
    {"listen", "--listen", "", "", kText, "", kGeneral,
     "[HOST]:PORT where hosts join by `horovod-agent --join`, instead of being reached"},
    {"port_range", "--port-range", "", "", kText, "", kGeneral,
     "FIRST-LAST: listen at the first of these ports that is free"},
    {"token_file", "--token-file", "", "", kText, "", kGeneral,
     "file with the secret of hosts that join, in hexadecimal digits, closed to others"},
    {"output_filename", "--output-filename", "", "", kText, "", kGeneral,
     "directory that also gets the output, as rank.N/stdout and rank.N/stderr"},

    {"ssh_port", "-p,--ssh-port", "", "", kInt, "", kSsh, "port of the hosts' sshd"},
    {"ssh_identity_file", "-i,--ssh-identity-file", "", "", kText, "", kSsh,
     "private key to authenticate with"},

    {"hosts", "-H,--hosts", "", "", kText, "", kHost,
     "hosts and slots, such as a:4,b:4 or n[01-16]:8; default what a scheduler gave, else "
     "localhost", "", "--host,-host,-hosts"},
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
     "where the store is: unix:/path, unix:@name, tcp:host:port or https://host:port"},
    {"store_ca", "", "", "HOROVOD_STORE_CA", kText, "", kIdentity,
     "PEM file of the authorities that may sign its certificate; unset: those of the system"},
    {"job_secret", "", "", "HOROVOD_JOB_SECRET", kText, "", kIdentity,
     "secret of the job, in hexadecimal digits"},
    {"rendezvous_address", "", "", "HOROVOD_GLOO_RENDEZVOUS_ADDR", kText, "", kIdentity,
     "address of the rendezvous server when HOROVOD_STORE is unset"},
    {"rendezvous_port", "", "", "HOROVOD_GLOO_RENDEZVOUS_PORT", kInt, "", kIdentity,
     "its port"},

    {"fusion_threshold", "--fusion-threshold-mb", "params.fusion_threshold_mb",
     "HOROVOD_FUSION_THRESHOLD", kInt, "134217728", kTune,
     "MiB (in the variable, bytes) that are packed into one batch at most; 0 packs nothing", "", "",
     1 << 20},
    {"cycle_time", "--cycle-time-ms", "params.cycle_time_ms", "HOROVOD_CYCLE_TIME", kDouble, "1", kTune,
     "milliseconds that the batching window stays open at most"},
    {"disable_group_fusion", "", "", "HOROVOD_DISABLE_GROUP_FUSION", kFlag, "0", kTune,
     "a grouped operation shares its batch with nothing else"},
    {"cache_capacity", "--cache-capacity", "params.cache_capacity", "HOROVOD_CACHE_CAPACITY", kInt, "1024", kTune,
     "entries of the response cache; 0 switches it off"},

    {"hierarchical_allreduce", "--hierarchical-allreduce", "params.hierarchical_allreduce",
     "HOROVOD_HIERARCHICAL_ALLREDUCE", kFlag, "0", kTune,
     "of each host only one rank exchanges with other hosts", "--no-hierarchical-allreduce"},
    {"hierarchical_allgather", "--hierarchical-allgather", "params.hierarchical_allgather",
     "HOROVOD_HIERARCHICAL_ALLGATHER", kFlag, "0", kTune,
     "for ranks that run the original",
     "--no-hierarchical-allgather"},
    {"torus_allreduce", "--torus-allreduce", "params.torus_allreduce", "HOROVOD_TORUS_ALLREDUCE",
     kFlag, "0", kTune, "for ranks that run the original", "--no-torus-allreduce"},
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

    {"mpi_threads_disable", "--mpi-threads-disable", "library_options.mpi_threads_disable",
     "HOROVOD_MPI_THREADS_DISABLE", kFlag, "0", kLibrary, "for ranks that run the original",
     "--no-mpi-threads-disable"},
    {"num_nccl_streams", "--num-nccl-streams", "library_options.num_nccl_streams",
     "HOROVOD_NUM_NCCL_STREAMS", kInt, "1", kLibrary, "for ranks that use NCCL"},
    {"thread_affinity", "--thread-affinity", "library_options.thread_affinity",
     "HOROVOD_THREAD_AFFINITY", kText, "0", kLibrary, "for ranks that run the original"},
    {"gloo_timeout_seconds", "--gloo-timeout-seconds", "library_options.gloo_timeout_seconds",
     "HOROVOD_GLOO_TIMEOUT_SECONDS", kInt, "30", kLibrary, "for ranks that use Gloo"},
    {"tcp", "--tcp", "library_options.tcp", "", kFlag, "0", kLibrary,
     "NCCL stays off InfiniBand, by NCCL_IB_DISABLE=1"},

    {"log_level", "--log-level", "logging.level", "HOROVOD_LOG_LEVEL", kText, "warning", kLogging,
     "trace, debug, info, warning, error or fatal"},
    {"log_hide_time", "--log-hide-timestamp,--log-without-timestamp", "logging.with_timestamp",
     "HOROVOD_LOG_HIDE_TIME", kFlag, "0", kLogging, "log lines without time",
     "--no-log-hide-timestamp,--log-with-timestamp", "", 1, true},
};

}  // namespace

std::span<const Setting> all_settings() { return kTable; }

}  // namespace hvd
