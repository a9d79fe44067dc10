# The transports between ranks: libprotrain_openmpi.so, libprotrain_mpich.so, libprotrain_gloo.so and
# libprotrain_nccl.so, plugins that the library loads when they are asked for. Each is built where its headers are
# found, and is a component of its own, so that the library needs no MPI where it is installed.
option(PROTRAIN_COMM "Build the transports between ranks whose headers are found" ON)
if(NOT PROTRAIN_COMM OR PROTRAIN_SANITIZE)  # a program with a sanitizer in it may not load libraries without
  return()
endif()

# Adds the plugin protrain_<name> of src/comm/<folder>, which uses the imported target <library>.
function(transport name folder library)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/comm/${folder}/*.cpp)
  add_library(protrain_${name} MODULE ${sources})
  target_link_libraries(protrain_${name} PRIVATE room_base ${library})
  target_compile_definitions(protrain_${name} PRIVATE PROTRAIN_COMM_BUILD_ID="${PROTRAIN_COMM_BUILD_ID}"
                             OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
  target_link_options(protrain_${name} PRIVATE -Wl,--no-undefined -Wl,--exclude-libs,ALL
                      -Wl,-soname,libprotrain_${name}.so)  # Debian asks it of a file beside libraries
  # An MPI in a folder of its own is found there after the installation too.
  set_target_properties(protrain_${name} PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON UNITY_BUILD ${PROTRAIN_UNITY})
  install(TARGETS protrain_${name} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${name})
endfunction()

pkg_check_modules(OPENMPI IMPORTED_TARGET QUIET ompi-c)
pkg_check_modules(MPICH IMPORTED_TARGET QUIET mpich)
find_package(Gloo CONFIG QUIET)
if(OPENMPI_FOUND)
  transport(openmpi mpi PkgConfig::OPENMPI)
endif()
if(TARGET protrain_cuda)
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
endif()
# The sources of the plugin for NCCL. Tests build them again, with a stand-in for NCCL.
file(GLOB PROTRAIN_NCCL_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/comm/nccl/*.cpp)
list(APPEND PROTRAIN_NCCL_SOURCES ${PROJECT_SOURCE_DIR}/src/comm/agree.cpp)
if(NCCL_INCLUDE_DIR AND NCCL_LIBRARY)
  add_library(nccl UNKNOWN IMPORTED)
  set_target_properties(nccl PROPERTIES IMPORTED_LOCATION ${NCCL_LIBRARY}
                        INTERFACE_INCLUDE_DIRECTORIES "${NCCL_INCLUDE_DIR};${CUDAToolkit_INCLUDE_DIRS}")
  transport(nccl nccl "nccl;CUDA::cudart_static")
  target_sources(protrain_nccl PRIVATE ${PROJECT_SOURCE_DIR}/src/comm/agree.cpp)
  set_target_properties(protrain_nccl PROPERTIES INSTALL_RPATH_USE_LINK_PATH OFF)
endif()
if(MPICH_FOUND)
  transport(mpich mpi PkgConfig::MPICH)
endif()
if(Gloo_FOUND)
  transport(gloo gloo gloo)
endif()
foreach(name openmpi mpich gloo nccl)
  if(NOT TARGET protrain_${name})
    message(STATUS "The transport ${name} is left out: its headers are not found")
  endif()
endforeach()
