// Makes a program that fails smaller for as long as it still fails: for the reader of a failure.
#pragma once

#include <functional>

#include "runtime/program.h"

namespace hvd::test {

// `fails` runs a program; it is called at most `tries` times.
Program shrink(Program program, const std::function<bool(const Program&)>& fails, int tries);

}  // namespace hvd::test
