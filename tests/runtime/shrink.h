// Shrinks a failing program while it still fails, to make the failure readable.
#pragma once

#include <functional>

#include "runtime/program.h"

namespace hvd::test {

// `fails` runs a program and returns whether it fails; the function calls it at most `tries` times.
Program shrink(Program program, const std::function<bool(const Program&)>& fails, int tries);

}  // namespace hvd::test
