# Cross-compiles for Debian on arm64 and runs the result under qemu-user. scripts/arm64.sh makes the sysroot.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(PROTRAIN_SYSROOT "" CACHE PATH "A Debian root for arm64; scripts/arm64.sh makes one")
if(NOT PROTRAIN_SYSROOT)
  message(FATAL_ERROR "PROTRAIN_SYSROOT must name a Debian root for arm64; scripts/arm64.sh makes one")
endif()
set(CMAKE_SYSROOT ${PROTRAIN_SYSROOT})
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES PROTRAIN_SYSROOT)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_LIBDIR} "${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig")
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${CMAKE_SYSROOT}")

# A current processor without SVE: most arm64 machines are like that, and it is faster to emulate.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -cpu neoverse-n1 -L "${CMAKE_SYSROOT}")
