// Large arrays begin at a cache line. llama.cpp takes the working memory of its attention kernel
// with a plain new[], which is aligned to 16 bytes only; vectors of 64 bytes then straddle two
// cache lines at nearly every access, and a cold prompt takes up to a sixth longer, depending on
// where the process's heap happens to lie.
#pragma once

namespace skippy {

// Makes sure that the program's array allocation is the one of aligned_arrays.cc: a linker leaves
// out what nobody calls. Costs nothing. In sanitized builds the allocation is the sanitizer's.
void UseAlignedArrays();

}  // namespace skippy
