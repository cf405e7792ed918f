# Every third-party target the project links. THIRD_PARTY.md lists versions and licences.
find_package(Threads REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(OpenSSL REQUIRED)

# tl::expected is header-only.
find_path(SKIPPY_EXPECTED_INCLUDE tl/expected.hpp REQUIRED)
add_library(tl_expected INTERFACE)
target_include_directories(tl_expected SYSTEM INTERFACE ${SKIPPY_EXPECTED_INCLUDE})

find_path(SKIPPY_TOML_INCLUDE toml++/toml.h REQUIRED)
add_library(skippy_toml INTERFACE)
target_include_directories(skippy_toml SYSTEM INTERFACE ${SKIPPY_TOML_INCLUDE})

# Only the metric types and the text format; the HTTP exposer of prometheus-cpp is not used.
find_path(SKIPPY_PROMETHEUS_INCLUDE prometheus/text_serializer.h REQUIRED)
find_library(SKIPPY_PROMETHEUS_LIBRARY prometheus-cpp-core REQUIRED)
add_library(skippy_prometheus INTERFACE)
target_include_directories(skippy_prometheus SYSTEM INTERFACE ${SKIPPY_PROMETHEUS_INCLUDE})
target_link_libraries(skippy_prometheus INTERFACE ${SKIPPY_PROMETHEUS_LIBRARY})

# BLAKE3: an installed library, else the C sources of Debian's librust-blake3-dev.
find_library(SKIPPY_BLAKE3_LIBRARY blake3)
if(SKIPPY_BLAKE3_LIBRARY)
  find_path(SKIPPY_BLAKE3_INCLUDE blake3.h REQUIRED)
  add_library(skippy_blake3 INTERFACE)
  target_include_directories(skippy_blake3 SYSTEM INTERFACE ${SKIPPY_BLAKE3_INCLUDE})
  target_link_libraries(skippy_blake3 INTERFACE ${SKIPPY_BLAKE3_LIBRARY})
else()
  file(GLOB blake3_dirs /usr/share/cargo/registry/blake3-*/c)
  if(NOT blake3_dirs)
    message(FATAL_ERROR "BLAKE3 not found: install librust-blake3-dev (tools/setup.sh does)")
  endif()
  list(GET blake3_dirs 0 blake3_dir)
  enable_language(ASM)
  set(blake3_sources ${blake3_dir}/blake3.c ${blake3_dir}/blake3_dispatch.c ${blake3_dir}/blake3_portable.c)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(APPEND blake3_sources ${blake3_dir}/blake3_sse2_x86-64_unix.S ${blake3_dir}/blake3_sse41_x86-64_unix.S
      ${blake3_dir}/blake3_avx2_x86-64_unix.S ${blake3_dir}/blake3_avx512_x86-64_unix.S)
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    list(APPEND blake3_sources ${blake3_dir}/blake3_neon.c)
  endif()
  add_library(skippy_blake3 STATIC ${blake3_sources})
  target_include_directories(skippy_blake3 SYSTEM PUBLIC ${blake3_dir})
  target_compile_options(skippy_blake3 PRIVATE -O3 -w)
endif()

# llama.cpp as tools/setup.sh stages it: include/{llama,common,vendor}, lib/*.a, bin, share.
if(NOT SKIPPY_LLAMA_PREFIX)
  execute_process(COMMAND ${CMAKE_SOURCE_DIR}/tools/setup.sh --print-llama-prefix
    OUTPUT_VARIABLE SKIPPY_LLAMA_PREFIX OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT EXISTS ${SKIPPY_LLAMA_PREFIX}/lib/libllama.a)
  message(FATAL_ERROR "llama.cpp is not staged; run tools/setup.sh (or 'make') first")
endif()
find_package(OpenMP)
add_library(skippy_llama INTERFACE)
target_include_directories(skippy_llama SYSTEM INTERFACE ${SKIPPY_LLAMA_PREFIX}/include/llama
  ${SKIPPY_LLAMA_PREFIX}/include/common ${SKIPPY_LLAMA_PREFIX}/include/vendor)
# Each needs those that follow it; said to CMake, so that it keeps their order whatever links them.
set(skippy_llama_libs OpenSSL::SSL OpenSSL::Crypto Threads::Threads ${CMAKE_DL_LIBS})
foreach(lib ggml-base ggml-cpu ggml-cuda ggml-rpc ggml llama cpp-httplib llama-common-base llama-common)
  if(EXISTS ${SKIPPY_LLAMA_PREFIX}/lib/lib${lib}.a)
    add_library(staged_${lib} STATIC IMPORTED GLOBAL)
    set_target_properties(staged_${lib} PROPERTIES
      IMPORTED_LOCATION ${SKIPPY_LLAMA_PREFIX}/lib/lib${lib}.a
      INTERFACE_LINK_LIBRARIES "${skippy_llama_libs}")
    list(PREPEND skippy_llama_libs staged_${lib})
  endif()
endforeach()
target_link_libraries(skippy_llama INTERFACE ${skippy_llama_libs})
if(OpenMP_CXX_FOUND)
  target_link_libraries(skippy_llama INTERFACE OpenMP::OpenMP_CXX)
endif()

# nlohmann::json and cpp-httplib as llama.cpp vendors them.
add_library(skippy_json INTERFACE)
target_include_directories(skippy_json SYSTEM INTERFACE ${SKIPPY_LLAMA_PREFIX}/include/vendor)
add_library(skippy_httplib INTERFACE)
target_include_directories(skippy_httplib SYSTEM INTERFACE ${SKIPPY_LLAMA_PREFIX}/include/vendor
  ${SKIPPY_LLAMA_PREFIX}/include/vendor/cpp-httplib)
target_compile_definitions(skippy_httplib INTERFACE CPPHTTPLIB_OPENSSL_SUPPORT)
target_link_libraries(skippy_httplib INTERFACE staged_cpp-httplib OpenSSL::SSL OpenSSL::Crypto
  Threads::Threads)

if(SKIPPY_BUILD_TESTS)
  find_package(GTest REQUIRED)
  find_library(SKIPPY_RAPIDCHECK rapidcheck)
endif()
