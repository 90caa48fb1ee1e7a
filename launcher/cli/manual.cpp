#include "launcher/cli/manual.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/text.h"
#include "horovod/version.h"
#include "launcher/cli/commands.h"
#include "launcher/cli/config_file.h"
#include "launcher/cli/flag_table.h"

namespace hvd::launcher {
namespace {

constexpr char kUsage[] = "horovodrun -np N [-H HOST:SLOTS,...] [flags] COMMAND [ARGUMENTS...]";
constexpr char kSummary[] =
    "Start a command once on each slot of the hosts, as the ranks of one job.";
constexpr char kExamples[] =
    "  horovodrun -np 2 python3 train.py       on this machine\n"
    "  horovodrun -H a:4,b:4 python3 train.py  two hosts, by ssh\n"
    "  horovodrun init a:4 b:4                 set up these hosts\n";

// The date of the last change to the text of the man pages.
constexpr const char* kManualDate = "2026-11-26";

std::string command_names() {
  std::vector<std::string> names;
  for (const Command& command : all_commands()) names.emplace_back(command.name);
  return join(names, " ");
}

// Returns whether only programs set this setting; lists omit it.
bool is_internal(const Setting& setting) {
  return setting.flags[0] == '\0' && setting.variable[0] == '\0';
}

std::string flags_of(const Setting& setting) { return join(split(setting.flags, ','), ", "); }

// Returns "-p, --ssh-port PORT", or "HOROVOD_STORE=URL" for a setting without a flag.
std::string with_value(const Setting& setting) {
  const std::string value = setting.value;
  if (setting.flags[0] == '\0') return cat(setting.variable, "=", value.empty() ? "0|1" : value);
  return flags_of(setting) + (value.empty() ? "" : " " + value);
}

// Converts the default from the variable's unit to the flag's unit.
std::string default_of_flag(const Setting& setting) {
  const auto number = parse_int(setting.default_value);
  return setting.flag_unit == 1 || !number ? setting.default_value
                                           : cat(*number / setting.flag_unit);
}

std::string help_of(const Flag& flag) {
  return flag.is_off ? cat("Opposite of ", flags_of(*flag.setting), ".") : flag.setting->help;
}

std::string help_of(const Setting& setting) {
  std::string text = setting.help;
  if (setting.off_flag[0] != '\0') {
    text += cat(" Opposite: ", join(split(setting.off_flag, ','), ", "), ".");
  }
  const std::string value = default_of_flag(setting);
  const bool has_default =
      !value.empty() && (setting.type != SettingType::kFlag || setting.variable[0] != '\0');
  // If the setting has no flag, its entry already begins with the variable (with_value()).
  const bool names_variable = setting.variable[0] != '\0' && setting.flags[0] != '\0';
  if (!has_default && !names_variable) return text;
  std::vector<std::string> brackets;
  if (has_default) brackets.push_back(value);
  if (names_variable) {
    brackets.push_back(setting.flag_unit == 1 ? setting.variable
                                              : cat(setting.variable, "=", setting.default_value));
  }
  return fmt::format("{} [{}]", text, join(brackets, "; "));
}

// Returns the help with the default value, without the variable.
std::string short_help_of(const Setting& setting) {
  const std::string value = default_of_flag(setting);
  if (setting.type == SettingType::kFlag || value.empty()) return setting.help;
  return cat(setting.help, " [", value, "]");
}

std::vector<std::string> wrap(std::string_view text, size_t width) {
  std::vector<std::string> lines = {""};
  for (const std::string_view word : words_of(text)) {
    if (!lines.back().empty() && lines.back().size() + 1 + word.size() > width) lines.push_back("");
    if (!lines.back().empty()) lines.back() += ' ';
    lines.back() += word;
  }
  return lines;
}

// Breaks a text into lines of at most `width` columns, each indented by `indent` blanks.
std::string indented(std::string_view text, size_t indent, size_t width) {
  std::string lines;
  for (const std::string& line : wrap(text, width > indent ? width - indent : 1)) {
    lines += cat(std::string(indent, ' '), line, "\n");
  }
  return lines;
}

// Returns whether the value of the flag may name a file, which a shell can complete.
bool is_of_files(const Flag& flag) {
  constexpr std::string_view kKinds[] = {"FILE", "DIR", "PATH", "COMMAND"};
  return std::ranges::find(kKinds, std::string_view(flag.setting->value)) != std::end(kKinds);
}

bool takes_hosts(const Flag& flag) { return std::string_view(flag.setting->key) == "hosts"; }

// Prints the names of hosts that the user's ssh knows. Hashed names in known_hosts are unreadable.
constexpr char kBashHosts[] = R"(_horovodrun_hosts() {
  {
    cat ~/.ssh/known_hosts /etc/ssh/ssh_known_hosts 2>/dev/null |
      sed -n 's/^@cert-authority *//; /^[#|@]/d; s/ .*//; s/\[\([^]]*\)\]:[0-9]*/\1/g; /[*?!]/d; p' | tr , '\n'
    cat ~/.ssh/config /etc/ssh/ssh_config 2>/dev/null |
      sed -n 's/^[[:space:]]*[Hh][Oo][Ss][Tt][[:space:]=]\{1,\}//p' | tr -s ' \t' '\n' | grep -v '[*?!]'
  } | sort -u
}
)";

// Prints the names of jobs, the ids of jobs without a name, and the numbers of Slurm.
constexpr char kJobNames[] =
    R"(horovodrun ps -a 2>/dev/null | awk 'NR == 1 { slurm = $3 == "SLURM" }
    NR > 1 && /^[^ ]/ { print ($2 == "-" ? $1 : $2); if (slurm && $3 != "-") print $3 }' | sort -u)";

// Returns the commands that accept the name of a job, joined by a separator.
std::string commands_of_jobs(const char* separator) {
  std::vector<std::string> names;
  for (const Command& command : all_commands()) {
    if (std::string_view(command.arguments).find("NAME") != std::string_view::npos)
      names.emplace_back(command.name);
  }
  return join(names, separator);
}

// Returns a branch of bash's completion for each flag with known values.
std::string bash_choices() {
  std::string branches;
  for (const Flag& flag : all_flags()) {
    if (takes_hosts(flag)) {
      branches += cat("    ", join(flag.spellings, "|"),
                      ") local list=${word%\"${word##*,}\"}\n"
                      "      compopt -o nospace 2>/dev/null\n"
                      "      COMPREPLY=($(compgen -P \"$list\" -W \"$(_horovodrun_hosts)\" -- "
                      "\"${word##*,}\")); return;;\n");
      continue;
    }
    const auto values = choices_of(*flag.setting);
    if (flag.spellings.empty()) continue;
    if (values.empty() && flag.takes_value() && !is_of_files(flag)) {
      branches += cat("    ", join(flag.spellings, "|"),
                      ") COMPREPLY=(); compopt +o default "
                      "2>/dev/null; return;;\n");
    }
    if (values.empty()) continue;
    branches += cat("    ", join(flag.spellings, "|"), ") COMPREPLY=($(compgen -W '",
                    join(values, " "), "' -- \"$word\")); return;;\n");
  }
  return branches;
}

std::string bash_completion() {
  std::vector<std::string> flags;
  for (const Flag& flag : all_flags()) {
    flags.insert(flags.end(), flag.spellings.begin(), flag.spellings.end());
  }
  return cat("# bash completion of horovodrun\n", kBashHosts, "_horovodrun_jobs() {\n  ", kJobNames,
             "\n}\n"
             "_horovodrun() {\n"
             "  local word=${COMP_WORDS[COMP_CWORD]} at=$((COMP_CWORD-1))\n"
             "  # --flag=value comes as three words, and a:4,b as three.\n"
             "  while [ \"${COMP_WORDS[at]}\" = : ] && ((at > 2)); do at=$((at-2)); done\n"
             "  [ \"${COMP_WORDS[at]}\" != = ] || at=$((at-1))\n"
             "  local before=${COMP_WORDS[at]}\n"
             "  [ \"$word\" != = ] || word=\n"
             "  case $before in\n",
             bash_choices(),
             "  esac\n"
             "  case $word in\n"
             "    -*) COMPREPLY=($(compgen -W '",
             join(flags, " "),
             "' -- \"$word\")); return;;\n"
             "  esac\n"
             "  case ${COMP_WORDS[1]}:$COMP_CWORD in\n"
             "    exec:2) COMPREPLY=($(compgen -c -W \"$(_horovodrun_jobs)\" -- \"$word\"));;\n"
             "    exec:*) COMPREPLY=($(compgen -c -f -- \"$word\"));;\n"
             "    *:1) COMPREPLY=($(compgen -c -f -- \"$word\") $(compgen -W '",
             command_names(),
             "' -- \"$word\"));;\n"
             "    ",
             commands_of_jobs(":*|"),
             ":*) COMPREPLY=($(compgen -W \"$(_horovodrun_jobs)\" -- \"$word\"))\n"
             "       compopt +o default 2>/dev/null;;\n"
             "    *) COMPREPLY=($(compgen -c -f -- \"$word\"));;\n"
             "  esac\n"
             "}\n"
             "complete -o default -F _horovodrun horovodrun\n");
}

std::string single_quoted(std::string_view text, std::string_view quote) {
  std::string quoted;
  for (const char c : text) {
    if (c == '\'')
      quoted += quote;
    else
      quoted += c;
  }
  return "'" + quoted + "'";
}

// Escapes brackets and colons, which would end the description in _arguments.
std::string zsh_description(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

// Returns the zsh action that completes a value. For a single blank, zsh shows the kind of value, but completes
// nothing.
std::string zsh_action(const Flag& flag) {
  const std::string_view value = flag.setting->value;
  if (value.ends_with("DIR")) return "_files -/";
  if (value == "COMMAND") return "_cmdstring";
  return is_of_files(flag) ? "_files" : " ";
}

std::string zsh_completion() {
  std::string text =
      cat("#compdef horovodrun\n_horovodrun_jobs() {\n  local -a names=(${(f)\"$(", kJobNames,
          ")\"})\n  compadd -a names\n}\nlocal -a _horovodrun_commands=(\n");
  for (const Command& command : all_commands()) {
    text += cat("  ", single_quoted(cat(command.name, ":", command.help), "'\\''"), "\n");
  }
  text += ")\n_arguments -S \\\n";
  for (const Flag& flag : all_flags()) {
    for (const std::string& spelling : flag.spellings) {
      const std::string values = join(choices_of(*flag.setting), " ");
      const std::string action = takes_hosts(flag) ? "_sequence -s , _hosts"
                                 : !values.empty() ? cat("(", values, ")")
                                                   : zsh_action(flag);
      const std::string value =
          flag.takes_value() ? cat(":", flag.setting->value, ":", action) : "";
      const std::string help = help_of(flag);
      text += cat(
          "  ", single_quoted(cat("*", spelling, "[", zsh_description(help), "]", value), "'\\''"),
          " \\\n");
    }
  }
  return text + cat("  '*::command:{ (( CURRENT == 1 )) && _describe command _horovodrun_commands; "
                    "case $words[1] in (",
                    commands_of_jobs("|"),
                    ") _horovodrun_jobs;; (*) _normal;; "
                    "esac }'\n");
}

std::string fish_completion() {
  std::string text =
      cat("# fish completion of horovodrun\nfunction __horovodrun_jobs\n  ", kJobNames,
          "\nend\ncomplete -c horovodrun -f -n '__fish_seen_subcommand_from ",
          commands_of_jobs(" "), "' -a '(__horovodrun_jobs)'\n");
  for (const Command& command : all_commands()) {
    text += cat("complete -c horovodrun -n __fish_use_subcommand -a ", command.name, " -d ",
                single_quoted(command.help, "\\'"), "\n");
  }
  for (const Flag& flag : all_flags()) {
    for (const std::string& spelling : flag.spellings) {
      const bool is_long = spelling.starts_with("--");
      const std::string values =
          takes_hosts(flag) ? "(__fish_print_hostnames)" : join(choices_of(*flag.setting), " ");
      const std::string value = !values.empty()     ? cat(" -x -a ", single_quoted(values, "\\'"))
                                : is_of_files(flag) ? " -r"
                                                    : " -x";
      const char* const kind = is_long ? "-l" : spelling.size() == 2 ? "-s" : "-o";
      text += fmt::format("complete -c horovodrun {} {}{} -d {}\n", kind,
                          spelling.substr(is_long ? 2 : 1), flag.takes_value() ? value : "",
                          single_quoted(help_of(flag), "\\'"));
    }
  }
  return text;
}

std::string in_code(const std::string& text) { return text.empty() ? "" : cat("`", text, "`"); }

// Escapes the character |, which would end the cell of a table.
std::string cell(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2)
    text.insert(at, "\\");
  return text;
}

std::string default_in_table(const Setting& setting) {
  if (setting.flag_unit == 1) return setting.default_value;
  return cat(default_of_flag(setting), " (variable: ", setting.default_value, ")");
}

// Returns the HTML anchors of a row: its long flag, or its variable if the setting has no flag.
std::string anchor(const Setting& setting) {
  for (const std::string& flag : split(setting.flags, ',')) {
    if (flag.starts_with("--")) return cat("<a id=\"", flag.substr(2), "\"></a>");
  }
  return cat("<a id=\"", setting.variable, "\"></a>");
}

std::string markdown() {
  std::string text = cat(
      "# Settings\n\n"
      "All flags of `horovodrun`, keys of its `--config-file`, and variables. A flag wins over "
      "the\n"
      "config file, which wins over the environment. For a variable of the ranks, `-x` wins over\n"
      "`env` of the config file, which wins over `--env-file`; their values win over other flags,\n"
      "which win over the launcher's environment, from which `-x NAME` takes its value. Variables\n"
      "in the tables are what the ranks read; those of flags that were given are set for them.\n\n"
      "This page is generated: `horovodrun --manual markdown > docs/settings.md`.\n");
  for (const std::string& section : all_topics()) {
    text += cat("\n## ", section,
                "\n\n| flag | config key | variable | default | meaning |\n"
                "|---|---|---|---|---|\n");
    for (const Setting& setting : all_settings()) {
      if (section != setting.section || is_internal(setting)) continue;
      text += cat("| ", anchor(setting), in_code(flags_of(setting)), " | ",
                  in_code(config_key(setting)), " | ", in_code(setting.variable), " | ",
                  cell(default_in_table(setting)), " | ", cell(setting.help), " |\n");
    }
  }
  return text;
}

std::string roff(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\')
      escaped += "\\e";
    else if (c == '-')
      escaped += "\\-";
    else if (c == '\'')
      escaped += "\\(aq";
    else
      escaped += c;
  }
  return escaped;
}

std::string title(std::string_view name, std::string_view section, std::string_view about) {
  return cat(".TH ", name, " ", section, " \"", kManualDate,
             "\" \"horovodrun " HVD_VERSION "\"\n.SH NAME\n", about, "\n");
}

std::string capitalised(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] -= 'a' - 'A';
  return text;
}

// The sections of horovodrun(1) after its options.
constexpr char kManualEnd[] = R"(.SH EXIT STATUS
The first failure decides the exit status, and a sentence on standard error names it.
.TP
.B 0
All ranks ended with 0.
.TP
.B 1
A host was lost, or a rank could not be started.
.TP
.B 2
Nothing was started: a flag, a list of hosts, a host, or the program on a host is faulty.
.TP
.B 124
The job ran for longer than \-\-timeout.
.TP
.B 128+N
Signal N ended the first rank that failed, or the launcher: 130 for Ctrl\-C, 137 for SIGKILL.
.TP
.B 141
The reader of standard output closed it.
.TP
.I another
The first rank that failed exited with this number.
.SH ENVIRONMENT
The variable of a flag stands in brackets behind its text. A flag wins over the config file, which wins over
the variable.
.BR horovod\-environment (7)
lists all variables.
.SH FILES
.TP
.IR ~/.ssh/config ", " ~/.ssh/known_hosts
The user's settings and known hosts of ssh, which count as for
.BR ssh (1).
.TP
.I /tmp/horovodrun\-UID
Records and output of detached jobs, for 14 days; HOROVOD_SPOOL_DIR names another directory than /tmp.
.TP
.I ~/.local/state/horovodrun
Records of jobs, and the output of those with a name, for 14 days; HOROVOD_STATE_DIR names another directory.
.SH NOTES
The other hosts of a job need no installation of horovodrun:
.BR horovod\-agent (1)
is copied there. They need the program of the ranks and, for programs that call Horovod, its package.
.SH BUGS
.B horovodrun report
writes a file for a bug report.
.PP
Tensors on GPUs have never run on a GPU.
.SH EXAMPLES
Two ranks on this machine, then four on each of two hosts:
.PP
.EX
    horovodrun \-np 2 python3 train.py
    horovodrun \-np 8 \-H a:4,b:4 python3 train.py
.EE
.PP
A script of Python, by the active environment, with a rank for each GPU:
.PP
.EX
    horovodrun \-H a,b \-\-slots\-per\-host gpu train.py
.EE
.PP
The plan of a job, and a report of what works here:
.PP
.EX
    horovodrun \-np 8 \-H a:4,b:4 \-\-dry\-run python3 train.py
    horovodrun \-\-check\-build python3
.EE
.SH SEE ALSO
.BR horovod\-agent (1),
.BR horovod\-rendezvous (1),
.BR horovod\-config (5),
.BR horovod\-hostfile (5),
.BR horovod\-environment (7),
.BR horovod\-plugin (7)
)";

std::string man_page() {
  std::string text = cat(
      title("HOROVODRUN", "1", "horovodrun \\- start the ranks of a distributed job"),
      ".SH SYNOPSIS\n.B ", roff(kUsage), "\n.SH DESCRIPTION\n", roff(kSummary),
      " Without hosts, the ranks run on those of the scheduler's allocation, or on this machine.\n"
      ".PP\nCommands of horovodrun itself:\n");
  for (const Command& command : all_commands()) {
    text += cat(".TP\n.B horovodrun ", command.name, " ", roff(command.arguments), "\n",
                roff(command.help), "\n", roff(command.details));
  }
  text += ".SH OPTIONS\n";
  for (const std::string& section : all_topics()) {
    std::string entries;
    for (const Setting& setting : all_settings()) {
      if (section != setting.section || setting.flags[0] == '\0') continue;
      entries += cat(".TP\n.B ", roff(with_value(setting)), "\n", roff(help_of(setting)), "\n");
    }
    if (!entries.empty()) text += cat(".SS ", roff(capitalised(section)), "\n", entries);
  }
  return text + kManualEnd;
}

// Returns horovod-environment(7), the page of the variables.
std::string environment_page() {
  std::string text =
      cat(title("HOROVOD\\-ENVIRONMENT", "7",
                "horovod\\-environment \\- variables of horovodrun and of the ranks"),
          ".SH DESCRIPTION\n.BR horovodrun (1)\nand the ranks read these variables. A flag of "
          "horovodrun wins over "
          "the config file, which wins over the variable; ranks get the variables of flags that "
          "were given.\n");
  for (const std::string& section : all_topics()) {
    std::string entries;
    for (const Setting& setting : all_settings()) {
      if (section != setting.section || setting.variable[0] == '\0') continue;
      entries += cat(".TP\n.B ", roff(setting.variable), "\n", roff(setting.help));
      if (setting.default_value[0] != '\0')
        entries += cat(" Default: ", roff(setting.default_value), ".");
      if (setting.flags[0] != '\0') entries += cat(" Flag: ", roff(flags_of(setting)), ".");
      entries += "\n";
    }
    if (!entries.empty()) text += cat(".SS ", roff(capitalised(section)), "\n", entries);
  }
  return text +
         ".SH NOTES\nA warning names a variable HOROVOD_... that is unknown and similar to a known "
         "one.\n"
         ".SH SEE ALSO\n.BR horovodrun (1),\n.BR horovod\\-config (5)\n";
}

// Formats a name and its help, side by side if the name is short.
std::string entry(const std::string& what, std::string_view help, size_t width) {
  // The name of the longest variable fits before the column.
  const size_t column = width < 78 ? 8 : 34;
  const std::string name = "  " + what;
  const std::string lines = indented(help, column, width);
  return name.size() + 2 <= column ? name + lines.substr(name.size()) : cat(name, "\n", lines);
}

// Returns the settings of one topic under its name; an empty text if there are none. `is_short`: only common settings,
// without their variables.
std::string topic_text(std::string_view topic, size_t width, bool is_short) {
  std::string text;
  for (const Setting& setting : all_settings()) {
    if (topic != setting.section || is_internal(setting)) continue;
    if (is_short && !setting.is_common) continue;
    if (text.empty()) text = cat(topic, ":\n");
    const std::string help = is_short ? short_help_of(setting) : help_of(setting);
    text += entry(with_value(setting), help, width);
  }
  return text;
}

std::string commands_text(size_t width) {
  std::string text = "\ncommands (horovodrun help COMMAND explains one):\n";
  for (const Command& command : all_commands()) {
    // The heading already names the command help.
    if (command.name == std::string_view("help")) continue;
    text += entry(cat(command.name, " ", command.arguments), command.help, width);
  }
  return text;
}

std::string command_text(const Command& command, size_t width) {
  std::string text =
      cat(indented(cat("Usage: horovodrun ", command.name, " ", command.arguments), 0, width), "\n",
          indented(command.help, 0, width));
  for (const std::string& paragraph : split(command.details, '\n')) {
    if (!paragraph.empty()) text += cat("\n", indented(paragraph, 0, width));
  }
  text += "\nExamples:\n";
  for (const std::string& line : split(command.examples, '\n')) {
    if (!line.empty()) text += cat("  ", line, "\n");
  }
  return text;
}

}  // namespace

std::string first_screen() {
  return cat(
      kSummary, "\n\n", kExamples,
      "\nhorovodrun --help lists commands and common flags; man horovodrun has all of them.\n"
      "horovodrun --check-build shows which frameworks and backends work here.\n");
}

std::string help_text(size_t width) {
  std::string text = cat(indented(kSummary, 0, width), "\n",
                         indented(cat("Usage: ", kUsage), 0, width), "\n", kExamples);
  text += commands_text(width);
  for (const std::string& topic : all_topics()) {
    const std::string flags = topic_text(topic, width, true);
    if (!flags.empty()) text += cat("\n", flags);
  }
  return cat(text, "\n",
             indented(cat("--help-all prints all flags; help TOPIC prints those of a topic: ",
                          join(all_topics(), ", "), "."),
                      0, width));
}

std::string topic_help_text(std::string_view topic, size_t width) {
  const Command* command = find_command(topic);
  return command == nullptr ? topic_text(topic, width, false) : command_text(*command, width);
}

std::string full_help_text(size_t width) {
  std::string text = cat(indented(cat("Usage: ", kUsage), 0, width), commands_text(width));
  for (const std::string& topic : all_topics()) text += cat("\n", topic_help_text(topic, width));
  return text;
}

std::string completion(std::string_view shell) {
  if (shell == "zsh") return zsh_completion();
  return shell == "fish" ? fish_completion() : bash_completion();
}

std::string manual(std::string_view format) {
  if (format == "environment") return environment_page();
  return format == "man" ? man_page() : markdown();
}

}  // namespace hvd::launcher
