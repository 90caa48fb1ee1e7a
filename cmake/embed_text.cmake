# Writes a C++ file that defines hvd::launcher::NAME, the text of a file as it is:
#   cmake -D INPUT=script.py -D OUTPUT=script.cpp -D NAME=kScript -P embed_text.cmake
file(READ "${INPUT}" text)
file(WRITE "${OUTPUT}" "namespace hvd::launcher {
extern const char ${NAME}[];
const char ${NAME}[] = R\"script(${text})script\";
}  // namespace hvd::launcher
")
