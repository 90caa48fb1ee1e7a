#include "launcher/cli/commands.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/text.h"
#include "launcher/cli/flag_table.h"

namespace hvd::launcher {
namespace {

constexpr std::array kCommands = {
    Command{"ps", "[-a] [-w] [--json] [NAME]", "List your running jobs and their ranks.",
            "Each rank is a line with its host, pid, state, time since its start, mean share of a "
            "core, memory, and the ranks that it waits for. The states are planned, starting, "
            "running, in_init, in_job, ending, ended and killed; stopped, exit CODE and signal "
            "NUMBER take their place. Jobs are those of your user with a launcher on this machine. "
            "NAME shows one of them: the name of a job (--name), or its id in horovodrun ps -a. "
            "Without such a job, the exit code is 2. On a terminal, -w does not cut long lines.\n"
            "--json prints one object per job, in a line of its own, with the state of each host "
            "(planned, connecting, preparing, held, starting, running, leaving, ending, done, "
            "lost) and more about each rank.\n"
            "-a lists all jobs that have a record in HOROVOD_STATE_DIR, also those that have "
            "ended, with the exit code and the cause, and those of other machines that use the "
            "same directory. It asks no launcher. Records are kept for 14 days, and of the last "
            "500 jobs.\n",
            "horovodrun ps\nhorovodrun ps --json\nhorovodrun ps -a\n"},
    Command{"top", "[--once] [--json] [NAME]", "Show a running job live on a terminal.",
            "It shows the rates of the job, its hosts, and for each rank state, steps, time of a "
            "step, the share of it until all ranks had agreed, shares of a core used and waited "
            "for, and memory; more than 40 ranks are shown by host. h lists the keys, q ends it, "
            "and the job goes on. The agents are asked once a second, and no rank is. NAME is the "
            "name of a job (--name), or its id in horovodrun ps -a, needed where several jobs "
            "run.\n"
            "--once, and an output that is no terminal, print all of it once. --json prints an "
            "object as that of horovodrun ps --json each second, until the job ends.\n",
            "horovodrun top\nhorovodrun top --once mnist\n"},
    Command{"stack", "[--native] [NAME]", "List processes and their Python stacks.",
            "The processes are the ranks and their child processes, which go on meanwhile. The "
            "stack of a rank that has not called hvd.init() comes from py-spy, found on the "
            "rank's host or next to horovodrun: pip install 'horovodrun[stacks]'. NAME is the name "
            "of a job (--name), or its id in horovodrun ps -a, needed where several jobs run.\n"
            "--native adds the calls in C and C++. py-spy briefly stops each process for that, "
            "and a call that waits in C may return early with EINTR.\n",
            "horovodrun stack\nhorovodrun stack mnist\n"},
    Command{"metrics", "[--level LEVEL] [NAME]", "Print the metrics of a job for Prometheus.",
            "The text has what the ranks have counted, what their processes have used, and the "
            "states of hosts and ranks. No rank is asked, and the answer comes within a second, "
            "also when ranks hang or are stopped. LEVEL is summary (the default), host or rank: "
            "each has what the one before has, and samples of each host, or of each rank. NAME is "
            "the name of a job (--name), or its id in horovodrun ps -a, needed where several jobs "
            "run.\n",
            "horovodrun metrics\nhorovodrun metrics --level rank mnist\n"},
    Command{"exec", "[NAME] [--rank LIST] COMMAND", "Run a command next to ranks of a job.",
            "It runs next to the first rank of each host, or next to the ranks of LIST, in the "
            "working directory and the environment of that rank (HOROVOD_RANK included), and "
            "reads no input. Its output comes line by line, with the rank as prefix where there "
            "are several. The exit code is the first that is not 0. NAME is the name of a job "
            "(--name), or its id in horovodrun ps -a, needed where several jobs run.\n"
            "The command ends with the job, and also when horovodrun exec ends: by SIGTERM, then "
            "by SIGKILL after --kill-grace.\n",
            "horovodrun exec nvidia-smi\nhorovodrun exec mnist --rank 0,3-5 sh -c env\n"},
    Command{"attach", "[NAME]", "Show the output of a detached job.",
            "It shows the last 1,000 lines, follows the output until the job ends, and returns "
            "the exit code of the job, also of one that has ended before. NAME is the name of a "
            "job (--name), or its id, which --detach printed; without NAME, it is the job that "
            "runs, or else the one that began last. Ctrl-C ends only attach.\n",
            "horovodrun --detach -np 2 python3 train.py\nhorovodrun attach\n"},
    Command{"logs", "[-f] [--rank LIST] [NAME]", "Print the output of a job.",
            "The job is one with --name, --detach or --output-filename: its last 64 MiB of output "
            "are kept, with the prefixes of lines, also of ranks that --only-rank hides. -f "
            "follows the output until the job ends. --rank prints the lines of these ranks alone. "
            "NAME is the name of a job, or its id in horovodrun ps -a; without NAME, it is the "
            "job that runs, or else the newest.\n",
            "horovodrun logs mnist\nhorovodrun logs -f --rank 0,3-5 mnist\n"},
    Command{"stop", "[NAME]", "End a job, and wait until it has ended.",
            "The launcher gets SIGTERM, and ends its ranks. On another machine, it is reached by "
            "srun in its job of Slurm, else by ssh. NAME is the name of a job (--name), or its id "
            "in horovodrun ps -a; without NAME, it is the job that runs. A job that does not run "
            "is no error.\n",
            "horovodrun --name mnist -np 2 python3 train.py\nhorovodrun stop mnist\n"},
    Command{"wait", "[NAME]", "Wait for the end of a job.",
            "It returns the exit code of the job, also of one that has ended before, and 137 if "
            "the launcher vanished. NAME is the name of a job (--name), or its id in horovodrun "
            "ps -a. Of several jobs with this name it is the one that runs, or else the newest.\n",
            "horovodrun wait mnist\nhorovodrun wait 4711\n"},
    Command{"resize", "[NAME] N", "Change the number of ranks of a job.",
            "The job is an elastic one (--min-np, --host-discovery-script), and N takes the place "
            "of --max-np: not fewer than --min-np, and not more than the slots of the hosts. With "
            "a discovery script, or --listen, N may be more, for hosts that are still to come. "
            "Where N is less than the current number, the last slots of the newest hosts leave at "
            "the next commit. NAME is the name of a job (--name), or its id in horovodrun ps -a, "
            "needed where several jobs run.\n",
            "horovodrun resize 2\nhorovodrun resize 4711 8\n"},
    Command{"remove", "[NAME] HOST|RANK", "Take a host or a rank out of a job.",
            "The job is an elastic one. The ranks of the host, or the rank of this number, leave "
            "at the next commit, and nothing is lost. Their slots stay empty until horovodrun "
            "resize needs them, or until the discovery script drops the host and names it again; "
            "with --listen, until another agent joins there. NAME is the name of a job (--name), "
            "or its id in horovodrun ps -a, needed where several jobs run.\n",
            "horovodrun remove node7\nhorovodrun remove 4711 3\n"},
    Command{
        "report", "[FILE] [FLAGS] [COMMAND]", "Write a file for a bug report.",
        "FILE must not exist; without FILE, it is horovod-report.txt. It has versions, the "
        "host, the result of --check-build for the Python of COMMAND, what horovodrun doctor "
        "finds on this machine, and the settings of FLAGS, config file and environment, without "
        "secrets. COMMAND does not run. Read the file before you publish it.\n",
        "horovodrun report\nhorovodrun report slow.txt -np 8 -H a:4,b:4 python3 train.py\n"},
    Command{"init", "[HOST...]", "Write a config file, and test your hosts.",
            "HOST is a host as -H takes it, with its slots behind a colon. The file is "
            "horovodrun.yaml in the present directory, for --config-file; it must not exist. Its "
            "comments name the settings that many jobs have. init then starts an agent on each "
            "host, says which Python and which frameworks it finds there, and ends with ready, or "
            "with what is in the way and exit code 1.\n"
            "Without hosts, init prints the names in ~/.ssh/config, and connects to none of "
            "them.\n",
            "horovodrun init\nhorovodrun init a:4 b:4\n"},
    Command{
        "doctor", "[FLAGS] [COMMAND]", "Examine the hosts of a job, and their network.",
        "It starts an agent on each host of -H, of the hostfile or of the allocation, and no rank. "
        "Each finding names the host, or the two ends of a link, and what to do. --preflight "
        "quick only looks; net, the default here, also sends data between the hosts; full "
        "also tests disks and GPUs. COMMAND does not run: its Python is the one whose packages are "
        "compared. "
        "The exit code is 0 without failures, 1 with failures, and 2 if the hosts could not "
        "be asked. --json prints one object.\n",
        "horovodrun doctor -H a:4,b:4\nhorovodrun doctor -H a:4,b:4 --preflight full python3 "
        "train.py\n"},
    Command{"help", "[TOPIC]", "Print the common flags, or all of a topic.",
            "TOPIC is a group of flags, or a command of horovodrun.\n",
            "horovodrun help hosts\nhorovodrun help exec\n"},
};

struct Synonym {
  const char* words;   // separated by commas
  const char* answer;  // the text after "no command 'WORD'; "
  bool is_program;     // a common program has this name
};

constexpr char kPs[] = "did you mean horovodrun ps?";
constexpr char kLogs[] = "did you mean horovodrun logs?";
constexpr char kEnd[] = "did you mean horovodrun stop?";
constexpr char kStart[] = "leave the word out, as in: horovodrun -np 4 python3 train.py";

constexpr Synonym kSynonyms[] = {
    {"status,jobs,list,queue,squeue,qstat", kPs, false},
    {"ls,info", kPs, true},
    {"htop,watch", "did you mean horovodrun top?", true},
    {"log,output", kLogs, false},
    {"tail", kLogs, true},
    {"cancel,scancel,abort,shutdown,down", kEnd, false},
    {"kill,killall,pkill", kEnd, true},
    {"run,start,launch,submit,up,train", kStart, false},
    {"version", "did you mean horovodrun --version?", false},
    {"check-build,check_build,checkbuild", "did you mean horovodrun --check-build?", false},
    {"check", "did you mean horovodrun --check-build?", false},
    {"dry-run,plan", "did you mean horovodrun --dry-run?", false},
    {"completion,completions", "did you mean horovodrun --completion SHELL?", false},
    {"stacks,py-spy,pystack,dump", "did you mean horovodrun stack?", false},
    {"scale", "did you mean horovodrun resize?", false},
};

const Synonym* find_synonym(std::string_view word) {
  for (const Synonym& synonym : kSynonyms) {
    const auto words = split(synonym.words, ',');
    if (std::find(words.begin(), words.end(), word) != words.end()) return &synonym;
  }
  return nullptr;
}

bool have_same_letters(std::string_view one, std::string_view other) {
  return std::is_permutation(one.begin(), one.end(), other.begin(), other.end());
}

// Returns the command that the word misspells: by one letter, by two in a long word, or by the order of its letters.
std::string nearest_command(std::string_view word) {
  size_t most = word.size() > 4 ? 2 : 1;
  std::string nearest;
  for (const Command& command : all_commands()) {
    const bool is_swapped = word != command.name && have_same_letters(word, command.name);
    const size_t distance = is_swapped ? 1 : edit_distance(word, command.name);
    if (word.size() < 3 || distance > most) continue;
    nearest = command.name;
    most = distance - 1;  // a later match must have fewer differences
  }
  return nearest;
}

bool names_size(const Flag& flag) {
  constexpr std::string_view kSizes[] = {"num_proc", "hosts", "hostfile", "slots_per_host",
                                         "min_num_proc"};
  return std::ranges::find(kSizes, std::string_view(flag.setting->key)) != std::end(kSizes);
}

bool is_spelling_of(const Flag& flag, std::string_view name) {
  return std::ranges::find(flag.spellings, name) != flag.spellings.end() ||
         std::ranges::find(flag.aliases, name) != flag.aliases.end();
}

}  // namespace

std::span<const Command> all_commands() { return kCommands; }

const Command* find_command(std::string_view name) {
  for (const Command& command : kCommands) {
    if (name == command.name) return &command;
  }
  return nullptr;
}

std::vector<std::string> with_help_first(std::vector<std::string> arguments) {
  const bool asks = arguments.size() == 2 && (arguments[1] == "--help" || arguments[1] == "-h") &&
                    find_command(arguments[0]) != nullptr;
  if (asks) arguments = {"--help", std::move(arguments[0])};
  return arguments;
}

std::string explain_unknown_command(std::string_view word) {
  const std::string sentence = cat("no command '", printable(word), "'; ");
  if (const Synonym* synonym = find_synonym(word)) return sentence + synonym->answer;
  const std::string near = nearest_command(word);
  return near.empty() ? "" : cat(sentence, "did you mean horovodrun ", near, "?");
}

bool is_command_elsewhere(std::string_view word) {
  const Synonym* synonym = find_synonym(word);
  return synonym != nullptr && !synonym->is_program;
}

std::string explain_program_elsewhere(std::string_view word) {
  const Synonym* synonym = find_synonym(word);
  if (synonym == nullptr || !synonym->is_program) return {};
  return cat(explain_unknown_command(word), " -np N before it runs the program of that name");
}

std::string explain_flag_behind(std::span<const std::string> command) {
  const std::vector<Flag> flags = all_flags();
  for (size_t i = 1; i < command.size(); ++i) {
    const std::string name = command[i].substr(0, command[i].find('='));
    const auto flag = std::ranges::find_if(
        flags, [&](const Flag& each) { return names_size(each) && is_spelling_of(each, name); });
    if (flag == flags.end()) continue;
    const bool has_value = name.size() < command[i].size() || i + 1 == command.size();
    const std::string given = has_value ? command[i] : cat(command[i], " ", command[i + 1]);
    return cat(printable(given),
               " comes after the command, which gets it; write it before: ", "horovodrun ",
               printable(given), " ", printable(command[0]), " ...");
  }
  return {};
}

}  // namespace hvd::launcher
