// PROTRAIN_CLONES before a hot function: it is compiled for AVX-512, AVX2 and the baseline, and the loader picks.
// Only for functions that are not templates; static members of a class template will do. What they call must be inlined
// to be compiled with them: mark it PROTRAIN_INLINE. All three give the same bits: products are contracted only where
// std::fma says so.
#pragma once

#if defined(__x86_64__) && !defined(PROTRAIN_NO_CLONES)
#define PROTRAIN_CLONES [[gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")]]
#else
#define PROTRAIN_CLONES
#endif

#define PROTRAIN_INLINE [[gnu::always_inline]] inline
