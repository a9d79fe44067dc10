// PROTRAIN_CLONES compiles a hot function for AVX-512, AVX2 and the baseline; the loader picks one of the three. They
// give the same bits, because a product and a sum are fused only where the code calls fma. A function template cannot
// have clones, but a static member of a class template can. The build defines PROTRAIN_NO_CLONES under sanitizers and
// for clang before 18, which always picks the baseline.
//   PROTRAIN_INLINE marks the functions that a clone calls. They are inlined, because only inlined code is compiled for
// the clone's processor.
#pragma once

#if defined(__x86_64__) && !defined(PROTRAIN_NO_CLONES)
#define PROTRAIN_CLONES [[gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")]]
#else
#define PROTRAIN_CLONES
#endif

#define PROTRAIN_INLINE [[gnu::always_inline]] inline
