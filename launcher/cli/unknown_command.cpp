#include "launcher/cli/unknown_command.h"

#include <algorithm>

#include "base/text.h"
#include "launcher/cli/commands.h"
#include "launcher/cli/flag_table.h"

namespace hvd::launcher {
namespace {

struct Synonym {
  const char* words;   // separated by commas
  const char* answer;  // follows "no command 'WORD'; "
  bool is_program;     // a common program has this name, which an allocation's hosts may run
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
    {"check-build,check_build,checkbuild,doctor", "did you mean horovodrun --check-build?", false},
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

// Finds a command that was misspelled: one letter differs, or two in a long word, or letters are in another order.
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
