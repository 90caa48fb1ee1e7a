// What this processor can do beyond its architecture's baseline.
#pragma once

namespace hvd {

// AVX2 and F16C.
bool cpu_has_avx2();

}  // namespace hvd
