# Writes a C++ file that defines hvd::launcher::NAME, the text of a shell script on one line:
#   cmake -D INPUT=script.sh -D OUTPUT=script.cpp -D NAME=kScript -P embed_shell_script.cmake
# A comment has a line of its own. A line ends where a command does, or after a word or operator that expects
# another command; the pattern of a `case` and its first command share a line, and so do `esac` and `;;`.
file(READ "${INPUT}" text)
string(REGEX REPLACE "(^|\n)([ \t]*(#[^\n]*)?\n)+" "\\1" text "${text}")
string(REGEX REPLACE "(^|\n)[ \t]+" "\\1" text "${text}")
string(REGEX REPLACE "\n+$" "" text "${text}")
string(REGEX REPLACE "([{(|&]|;;|[ \t;](do|then|else|in)|^else)\n" "\\1 " text "${text}")
string(REPLACE "\n" "; " text "${text}")
if(text MATCHES "['\\!]")
  message(FATAL_ERROR "${INPUT}: a login shell would change a single quote, backslash or exclamation mark")
endif()
file(WRITE "${OUTPUT}" "namespace hvd::launcher {
extern const char ${NAME}[];
const char ${NAME}[] = R\"script(${text})script\";
}  // namespace hvd::launcher
")
