# One static library per room of src/README.md, linked only to the rooms that it may use. So the linker enforces the
# table there, and scripts/layers.py checks the includes.
#
# The compiler sees up to eight sources of a room at once, because most compile time goes to headers and templates that
# the sources share. So names in unnamed namespaces must differ within a room. The preset asan compiles each source
# alone and without precompiled headers, so it finds missing includes.

# Headers that most sources include.
set(precompiled <algorithm> <array> <bit> <cmath> <cstdint> <cstring> <functional> <limits> <map> <memory> <numeric>
                <optional> <set> <span> <string> <string_view> <utility> <vector> <fmt/format.h> <fmt/ranges.h>)

function(room name)
  cmake_parse_arguments(ROOM "" "DIR" "ROOMS;LIBRARIES" ${ARGN})
  if(NOT ROOM_DIR)
    set(ROOM_DIR src/${name})
  endif()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${ROOM_DIR}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/comm/(mpi|gloo|nccl)/")  # plugins (comm.cmake)
  if(NOT sources)
    return()
  endif()
  add_library(room_${name} STATIC ${sources})
  set_target_properties(room_${name} PROPERTIES UNITY_BUILD ${PROTRAIN_UNITY}
                                              UNITY_BUILD_BATCH_SIZE ${PROTRAIN_UNITY_BATCH})
  if(name STREQUAL base OR name STREQUAL backend)  # g++ 12 may break if headers were precompiled at another -O level
    target_precompile_headers(room_${name} PRIVATE ${precompiled})
  else()
    target_precompile_headers(room_${name} REUSE_FROM room_base)
  endif()
  target_include_directories(room_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  target_link_libraries(room_${name} PUBLIC ${ROOM_LIBRARIES})
  foreach(other ${ROOM_ROOMS})
    if(TARGET room_${other})
      target_link_libraries(room_${name} PUBLIC room_${other})
    endif()
  endforeach()
  set_property(GLOBAL APPEND PROPERTY ROOM_OBJECTS $<FILTER:$<TARGET_OBJECTS:room_${name}>,EXCLUDE,[.]\(gch|pch\)$>)
endfunction()

# Sets `variable` to a build id: a hash of the compiler's version and of the headers in the given folders. A plugin and
# the library must have the same id, because they pass objects of these headers' types to each other.
function(build_id variable)
  set(id "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION} ${CMAKE_SYSTEM_PROCESSOR} ${PROTRAIN_SANITIZE}")
  foreach(folder ${ARGN})
    file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.h)
    foreach(header ${headers})
      set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
      file(SHA256 ${header} hash)
      string(APPEND id ${hash})
    endforeach()
  endforeach()
  string(SHA256 id "${id}")
  string(SUBSTRING ${id} 0 16 id)
  set(${variable} ${PROJECT_VERSION}-${id} PARENT_SCOPE)
endfunction()

# fmt's code is compiled once and linked into everything that uses it, so that nobody needs a libfmt at run time.
add_library(fmt_code STATIC ${PROJECT_SOURCE_DIR}/cmake/fmt.cpp)
target_include_directories(fmt_code SYSTEM PUBLIC
                           $<TARGET_PROPERTY:fmt::fmt-header-only,INTERFACE_INCLUDE_DIRECTORIES>)
set_property(GLOBAL APPEND PROPERTY ROOM_OBJECTS $<TARGET_OBJECTS:fmt_code>)

room(base LIBRARIES fmt_code Threads::Threads PkgConfig::URING nlohmann_json::nlohmann_json ${CMAKE_DL_LIBS})
target_include_directories(room_base SYSTEM PRIVATE ${XXHASH_INCLUDE_DIR})
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/base/checksum_avx2.cpp PROPERTIES
                              COMPILE_OPTIONS -mavx2 SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON)
endif()
room(graph ROOMS base)
room(ops ROOMS graph)
room(onnx_import DIR onnx_import ROOMS ops)
room(passes ROOMS ops)
room(grad ROOMS ops)
room(backend ROOMS graph LIBRARIES DNNL::dnnl ${OpenMP_CXX_LIBRARIES})
set_target_properties(room_backend PROPERTIES UNITY_BUILD OFF)  # its sources take long, so an edit must rebuild one alone
if(NOT PROTRAIN_FUZZ)  # fuzzing needs no fast kernels, and builds sooner without these options
  # Loops over tensors are vectorised in every preset. Sums are never reassociated.
  set(PROTRAIN_KERNEL_OPTIONS -O3 -fno-trapping-math)
endif()
target_compile_options(room_backend PRIVATE ${PROTRAIN_KERNEL_OPTIONS})
if(TARGET room_backend)
  # The build id covers src/backend/common too, because device and host must compute an update with the same bits.
  build_id(PROTRAIN_BUILD_ID src/backend src/backend/common src/graph src/base)
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/backend/registry.cpp PROPERTIES
                              COMPILE_DEFINITIONS PROTRAIN_BUILD_ID="${PROTRAIN_BUILD_ID}")
  # For omp.h. Precompiled headers are compiled without OpenMP and do not serve this source.
  set_property(SOURCE ${PROJECT_SOURCE_DIR}/src/backend/cpu/device.cpp
               APPEND PROPERTY COMPILE_OPTIONS ${OpenMP_CXX_FLAGS})
  set_property(SOURCE ${PROJECT_SOURCE_DIR}/src/backend/cpu/device.cpp PROPERTY SKIP_PRECOMPILE_HEADERS ON)
  # GCC 12 warns of values that its header for AVX-512 leaves undefined on purpose.
  set_property(SOURCE ${PROJECT_SOURCE_DIR}/src/backend/cpu/quantize.cpp
               APPEND PROPERTY COMPILE_OPTIONS $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  # The objects that every backend's plugin contains: the code that backends share, and the interface's default methods.
  # They have names of their own because UNITY_BUILD is OFF for this room.
  set(PROTRAIN_PLUGIN_OBJECTS $<FILTER:$<TARGET_OBJECTS:room_backend>,INCLUDE,/src/backend/\(common/|device[.]\)>)
endif()
room(comm ROOMS base)
build_id(PROTRAIN_COMM_BUILD_ID src/comm src/base)
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/comm/open.cpp PROPERTIES
                            COMPILE_DEFINITIONS PROTRAIN_COMM_BUILD_ID="${PROTRAIN_COMM_BUILD_ID}")
room(profile ROOMS base)
room(plan ROOMS ops profile)
room(program ROOMS plan)
room(run ROOMS program backend comm)
room(measure ROOMS run profile)
if(TARGET room_measure)
  target_compile_definitions(room_measure PRIVATE PROTRAIN_VERSION="${PROJECT_VERSION}")  # measurements are kept for one version
endif()
room(state ROOMS base)
room(draft ROOMS onnx_import passes grad measure state)
room(session ROOMS draft)
if(TARGET room_session)
  target_compile_definitions(room_session PRIVATE PROTRAIN_VERSION="${PROJECT_VERSION}")  # all ranks have the same
endif()

if(TARGET room_onnx_import)
  protobuf_generate(TARGET room_onnx_import PROTOS ${PROJECT_SOURCE_DIR}/onnx_import/model.proto
                    IMPORT_DIRS ${PROJECT_SOURCE_DIR} PROTOC_OUT_DIR ${CMAKE_CURRENT_BINARY_DIR}/generated)
  target_include_directories(room_onnx_import PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/generated)
  set_source_files_properties(${CMAKE_CURRENT_BINARY_DIR}/generated/onnx_import/model.pb.cc PROPERTIES
                              SKIP_UNITY_BUILD_INCLUSION ON)
  target_link_libraries(room_onnx_import PRIVATE protobuf::libprotobuf-lite)
endif()

if(EXISTS ${PROJECT_SOURCE_DIR}/src/protrain.cpp)
  add_library(protrain SHARED src/protrain.cpp)
  add_library(protrain::protrain ALIAS protrain)  # the CMake package's name, for who uses the sources instead
  target_include_directories(protrain PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                             $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_definitions(protrain PRIVATE PROTRAIN_VERSION="${PROJECT_VERSION}")
  target_link_libraries(protrain PRIVATE room_session)
  # Libraries in folders of their own are found there after the installation too.
  set_target_properties(protrain PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 0 INSTALL_RPATH_USE_LINK_PATH ON)
  target_link_options(protrain PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/protrain.map
                                       -Wl,--no-undefined -Wl,--exclude-libs,ALL)
endif()
