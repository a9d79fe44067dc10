# libprotrain_cuda.so: the backend for NVIDIA's GPUs, a plugin that the library loads when a device "cuda:N" is asked for.
# Without nvcc it is left out, and a line says so. It links neither the driver nor the library, so it can be built and
# loaded on machines without a GPU. The CUDA runtime inside it finds the driver when the device is opened.
option(PROTRAIN_CUDA "Build the CUDA plugin where nvcc is found" ON)
set(PROTRAIN_CUDA_ARCHITECTURES "80-real;90" CACHE STRING
    "GPUs the plugin is compiled for; the last one as PTX too, for newer ones. One alone, \"90-real\", is quicker to build")

if(NOT PROTRAIN_CUDA OR PROTRAIN_SANITIZE)
  return()
endif()
include(CheckLanguage)
if(NOT CMAKE_CUDA_COMPILER)
  find_program(PROTRAIN_NVCC nvcc PATHS /usr/local/cuda/bin)
  if(PROTRAIN_NVCC)
    set(CMAKE_CUDA_COMPILER ${PROTRAIN_NVCC})
  endif()
endif()
if(NOT CMAKE_CUDA_COMPILER)
  message(STATUS "The CUDA plugin is left out: there is no nvcc")
  return()
endif()
set(CMAKE_CUDA_ARCHITECTURES ${PROTRAIN_CUDA_ARCHITECTURES})
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has C++20
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
find_package(CUDAToolkit REQUIRED)

# Replaces the sources in `variable` by files that include half of PROTRAIN_UNITY_BATCH of them each. nvcc reads the
# headers of a source three times, which takes longer than all else. CMake itself unites sources of CUDA only from 3.31
# on. Names in unnamed namespaces must differ within the plugin, as within a room.
function(unite_cuda variable)
  set(united)
  set(begin 0)
  list(LENGTH ${variable} count)
  math(EXPR size "(${PROTRAIN_UNITY_BATCH} + 1) / 2")
  while(begin LESS count)
    list(SUBLIST ${variable} ${begin} ${size} batch)
    list(TRANSFORM batch REPLACE "(.+)" "#include \"\\1\"\n")
    string(CONCAT text ${batch})
    set(file ${CMAKE_CURRENT_BINARY_DIR}/united/${variable}_${begin}.cu)
    file(CONFIGURE OUTPUT ${file} CONTENT "${text}" @ONLY)
    list(APPEND united ${file})
    math(EXPR begin "${begin} + ${size}")
  endwhile()
  set(${variable} ${united} PARENT_SCOPE)
endfunction()

# As everywhere, the compiler may not contract a product and a sum into an fma; the source writes fma where it wants
# one. So kernels that share a formula with the host give the same bits, and so do a kernel's vectors and its single
# elements. The files listed here are the exception: no host code has to match their bits, and they gain most from
# contraction.
file(GLOB exact CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/backend/cuda/*.cu)
set(contracted attention attention_grad attention_grad_mma attention_mma linear_loss loss normalization)
list(TRANSFORM contracted REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/src/backend/cuda/\\1.cu")
list(REMOVE_ITEM exact ${contracted})
if(PROTRAIN_UNITY)
  unite_cuda(exact)
  unite_cuda(contracted)
endif()
set_source_files_properties(${exact} PROPERTIES COMPILE_OPTIONS -fmad=false)
add_library(protrain_cuda MODULE ${exact} ${contracted} ${PROTRAIN_PLUGIN_OBJECTS})
target_link_libraries(protrain_cuda PRIVATE room_graph CUDA::cublasLt CUDA::cudart_static)
set_target_properties(protrain_cuda PROPERTIES CUDA_STANDARD 20 CUDA_VISIBILITY_PRESET hidden
                      CUDA_RUNTIME_LIBRARY Static INSTALL_RPATH "")
target_compile_definitions(protrain_cuda PRIVATE PROTRAIN_BUILD_ID="${PROTRAIN_BUILD_ID}")
# nvcc cannot compile fmt's checks at compile time.
target_compile_options(protrain_cuda PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${PROTRAIN_KERNEL_OPTIONS}>
  $<$<COMPILE_LANGUAGE:CUDA>:--extended-lambda --expt-relaxed-constexpr -diag-suppress=20208
    -DFMT_CONSTEVAL= -DFMT_USE_CONSTEXPR=1 -Xcompiler=-ffp-contract=off>)
target_link_options(protrain_cuda PRIVATE -Wl,--no-undefined -Wl,--exclude-libs,ALL)
install(TARGETS protrain_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT cuda)
