# How this project declares targets: the same flags everywhere, one line a target.

add_library(hvd_options INTERFACE)
target_compile_options(hvd_options INTERFACE -Wall -Wextra)
option(HVD_WERROR "Warnings are errors, as in all presets" OFF)
if(HVD_WERROR)
  target_compile_options(hvd_options INTERFACE -Werror)
endif()
# A folder is included by its name: "base/status.h", "rendezvous/store/store.h", "horovod/types.h".
target_include_directories(hvd_options INTERFACE
  ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include
  ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
target_link_libraries(hvd_options INTERFACE Threads::Threads)
# Paths in binaries are relative to the clone: two clones build the same bytes and share ccache.
add_compile_options(-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(hvd_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-unused-private-field>
    $<$<COMPILE_LANGUAGE:CXX>:-Wthread-safety>)  # what src/base/mutex.h annotates
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # It sees overlaps in a plain `string = "x"` (GCC bug 105651), and mismatches in Asio's coroutine
  # frames, that are not there.
  target_compile_options(hvd_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict -Wno-mismatched-new-delete>)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND HVD_SANITIZE)
  # g++ 12 sees overflows in instrumented standard headers that are not there; -Wtsan is about
  # Asio's own fences.
  target_compile_options(hvd_options INTERFACE -Wno-maybe-uninitialized -Wno-stringop-overflow
    -Wno-array-bounds -Wno-tsan)
endif()
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ takes a source that another one includes for a header.
  target_compile_options(hvd_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
endif()
if(HVD_SANITIZE)
  # Less optimised and with line numbers only: compiled in nearly half of the time.
  add_compile_options(-fsanitize=${HVD_SANITIZE} -fno-omit-frame-pointer -O1 -g1
                      -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${HVD_SANITIZE})
  add_compile_definitions(HVD_SANITIZED)  # clang 14 defines no name for each sanitizer
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    # clang 14 cannot compile coroutines with it.
    add_compile_options(-fno-sanitize=function)
    # Programs in C use our library, which is C++.
    add_link_options(-fsanitize-link-c++-runtime)
    link_libraries(stdc++)
  endif()
endif()

# AddressSanitizer reports a null pointer by itself. These checks take a fifth of the time of an unoptimised compilation;
# the tier of a release has them everywhere.
option(HVD_SANITIZE_ALL "Sanitize the tests that tests/not_sanitized.txt leaves out, too, with all checks" OFF)
set(hvd_fewer_checks "")
if(HVD_SANITIZE MATCHES undefined AND NOT HVD_SANITIZE_ALL AND NOT HVD_FUZZERS)
  set(hvd_fewer_checks -fno-sanitize=null,alignment,vptr,object-size)
endif()

# hvd_sanitize_quickly(): what this folder compiles waits more than it computes. Unoptimised, clang with
# AddressSanitizer and UndefinedBehaviorSanitizer takes half of the time; fuzzers compute all the time.
macro(hvd_sanitize_quickly)
  if(HVD_SANITIZE AND NOT HVD_FUZZERS)
    add_compile_options(-O0 ${hvd_fewer_checks})
  endif()
endmacro()

# hvd_library(NAME SOURCES a.cpp ... [DEPENDS target ...])
function(hvd_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC hvd_options ${ARG_DEPENDS})
  if(NOT HVD_SANITIZE)  # a program that drops what it does not use can do so function by function
    target_compile_options(${name} PRIVATE -ffunction-sections -fdata-sections)
  endif()
endfunction()

# For whoever changes a file again and again: the headers of most files are read once. ccache cannot keep the results.
option(HVD_PRECOMPILE_HEADERS "Precompile the headers of large targets, as in the preset dev" OFF)
function(hvd_precompile_headers)
  if(HVD_PRECOMPILE_HEADERS)
    foreach(target IN LISTS ARGN)
      target_precompile_headers(${target} PRIVATE <algorithm> <chrono> <filesystem> <functional> <map> <memory>
        <optional> <span> <string> <string_view> <vector> ${PROJECT_SOURCE_DIR}/src/net/asio.h)
    endforeach()
  endif()
endfunction()

# Sanitizers and emulated processors cost ten times as much: a test may take fewer of many alike
# (tests/fewer.h).
set(HVD_TEST_SANITIZED 0)
if(HVD_SANITIZE OR CMAKE_CROSSCOMPILING)
  set(HVD_TEST_SANITIZED 1)
endif()
# How many times longer a test may take.
set(HVD_TEST_SLOWNESS 1)
if(CMAKE_CROSSCOMPILING)
  set(HVD_TEST_SLOWNESS 10)
elseif(HVD_SANITIZE)
  set(HVD_TEST_SLOWNESS 3)
endif()

# hvd_timeout(SECONDS TEST...): or ten minutes, where these are more. On a busy machine a test of seconds takes minutes.
function(hvd_timeout seconds)
  math(EXPR seconds "${seconds} * ${HVD_TEST_SLOWNESS}")
  if(seconds LESS 600)
    set(seconds 600)
  endif()
  set_tests_properties(${ARGN} PROPERTIES TIMEOUT ${seconds})
endfunction()

# All programs that ctest's label "unit" runs, so that a sanitized build can make just these.
add_custom_target(unit_tests)

# A sanitized build leaves these tests out (the file gives reasons), unless HVD_SANITIZE_ALL is ON.
set(not_sanitized ${PROJECT_SOURCE_DIR}/tests/not_sanitized.txt)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${not_sanitized})
file(STRINGS ${not_sanitized} HVD_NOT_SANITIZED REGEX "^[a-z]")

# Unit tests that run in the build with AddressSanitizer alone, as folders of tests, or `fuzz` for the corpora of all
# parsers: their programs are not built here.
set(HVD_LEFT_TO_ASAN "" CACHE STRING "Folders of tests whose unit tests are left to the build with AddressSanitizer")

# hvd_is_not_sanitized(NAME SANITIZERS RESULT): whether the table leaves the test of this folder out of a build with
# these.
function(hvd_is_not_sanitized name sanitizers result)
  set(${result} OFF PARENT_SCOPE)
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE path)
  foreach(line IN LISTS HVD_NOT_SANITIZED)
    string(REGEX MATCH "^([a-z]+) [|] ([^ ]+) [|] ." found "${line}")
    set(sanitizer ${CMAKE_MATCH_1})
    set(pattern "^(${CMAKE_MATCH_2})$")
    if(sanitizers MATCHES "${sanitizer}" AND (name MATCHES "${pattern}" OR path MATCHES "^${CMAKE_MATCH_2}(/|$)"))
      set(${result} ON PARENT_SCOPE)
    endif()
  endforeach()
endfunction()

# hvd_unit_test(NAME [PROGRAM target] [LABEL ...]): the labels of a test and of its program, by default that of the same
# name, if there is one. With a sanitizer that leaves it out, the program is not built and the test has no label "unit".
function(hvd_unit_test name)
  cmake_parse_arguments(ARG "" "PROGRAM" "" ${ARGN})
  set(program ${name})
  if(ARG_PROGRAM)
    set(program ${ARG_PROGRAM})
  endif()
  if(HVD_SANITIZE AND NOT HVD_SANITIZE_ALL)
    hvd_is_not_sanitized(${name} "${HVD_SANITIZE}" is_left_out)
    if(is_left_out)
      set_tests_properties(${name} PROPERTIES LABELS "not_sanitized")
      return()
    endif()
  endif()
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${PROJECT_SOURCE_DIR}/tests OUTPUT_VARIABLE folder)
  string(REGEX REPLACE "/.*" "" folder "${folder}")
  if(folder IN_LIST HVD_LEFT_TO_ASAN OR ("fuzz" IN_LIST HVD_LEFT_TO_ASAN AND name MATCHES "_fuzz_corpus$"))
    hvd_is_not_sanitized(${name} "address" is_not_sanitized)
    if(NOT is_not_sanitized)
      set_tests_properties(${name} PROPERTIES LABELS "left_to_asan")
      if(TARGET ${program})
        set_target_properties(${program} PROPERTIES EXCLUDE_FROM_ALL ON)
      endif()
      return()
    endif()
  endif()
  if(TARGET ${program})
    add_dependencies(unit_tests ${program})
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "unit;${ARG_UNPARSED_ARGUMENTS}")
endfunction()

# The tested code is optimised; a test need not be, unless it computes for long what it compares.
set(HVD_TEST_OPTIMIZATION -O0)

# hvd_test(NAME SOURCES a_test.cpp ... [DEPENDS target ...] [LABELS label ...] [ARGUMENTS argument ...])
# A doctest program; its main comes from tests/doctest_main.cpp.
function(hvd_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPENDS;LABELS;ARGUMENTS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE hvd_options hvd_doctest_main ${ARG_DEPENDS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_options(${name} PRIVATE ${HVD_TEST_OPTIMIZATION} ${hvd_fewer_checks})
  target_compile_definitions(${name} PRIVATE HVD_TEST_SANITIZED=${HVD_TEST_SANITIZED})
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name} ${ARG_ARGUMENTS})
  if(ARG_TIMEOUT)  # it takes longer than others, and begins first
    set_tests_properties(${name} PROPERTIES COST ${ARG_TIMEOUT})
  else()
    set(ARG_TIMEOUT 120)
  endif()
  hvd_timeout(${ARG_TIMEOUT} ${name})
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
  hvd_unit_test(${name} ${ARG_LABELS})
endfunction()

# The libFuzzer programs.
add_custom_target(fuzzers)

# hvd_fuzzer(NAME SOURCES a_fuzz.cpp CORPUS folder [DEPENDS target ...])
# The corpus always runs as a plain test; targets of one library share a program, such as launcher_fuzz_corpora. With
# HVD_FUZZERS (clang) NAME is a libFuzzer program too.
function(hvd_fuzzer name)
  cmake_parse_arguments(ARG "" "CORPUS" "SOURCES;DEPENDS" ${ARGN})
  list(TRANSFORM ARG_SOURCES PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ REGEX "^[^/]")
  string(REGEX REPLACE "_fuzz$" "" noun ${name})
  list(LENGTH ARG_SOURCES count)
  list(LENGTH ARG_DEPENDS libraries)
  if(count EQUAL 1 AND libraries EQUAL 1)
    string(REGEX REPLACE "^hvd_" "" program ${ARG_DEPENDS}_fuzz_corpora)
  else()
    set(program ${noun}_fuzz_corpora)
  endif()
  if(TARGET ${program})
    target_sources(${program} PRIVATE ${ARG_SOURCES})
  else()
    add_executable(${program} ${ARG_SOURCES})
    target_link_libraries(${program} PRIVATE hvd_options hvd_corpus_main ${ARG_DEPENDS})
    target_include_directories(${program} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
    target_compile_options(${program} PRIVATE -O0 ${hvd_fewer_checks})
    set_target_properties(${program} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  endif()
  add_test(NAME ${name}_corpus COMMAND ${program} ${noun} ${ARG_CORPUS})
  hvd_timeout(120 ${name}_corpus)
  hvd_unit_test(${name}_corpus PROGRAM ${program} fuzz)
  if(HVD_FUZZERS)
    add_executable(${name} ${ARG_SOURCES})
    target_link_libraries(${name} PRIVATE hvd_options ${ARG_DEPENDS})
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
    target_compile_definitions(${name} PRIVATE HVD_LIBFUZZER)
    # Its libraries are compiled with fuzzer-no-link (HVD_SANITIZE); libFuzzer itself comes in here.
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    add_dependencies(fuzzers ${name})
    set_target_properties(${name} PROPERTIES
      RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fuzz)
    # Its findings go to the build folder; the corpus is only read.
    file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/fuzz/found/${name})
    cmake_path(ABSOLUTE_PATH ARG_CORPUS BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    add_test(NAME ${name} COMMAND ${name} -max_total_time=60
             ${PROJECT_BINARY_DIR}/fuzz/found/${name} ${ARG_CORPUS})
    set_tests_properties(${name} PROPERTIES TIMEOUT 600 LABELS "fuzzing"
      WORKING_DIRECTORY ${PROJECT_BINARY_DIR}/fuzz)
  endif()
endfunction()
