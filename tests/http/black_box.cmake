# Every *_test.py of the calling folder becomes one ctest entry that drives the program of this
# build. LABEL is the ctest label.
# Two servers at a time have more threads than cores: they sleep at barriers instead of spinning.
function(skippy_black_box_tests label)
  if(NOT TARGET skippy)
    return()
  endif()
  file(GLOB paths CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_test.py)
  foreach(path ${paths})
    get_filename_component(name ${path} NAME_WE)
    add_test(NAME ${name} COMMAND ${Python3_EXECUTABLE} ${path})
    set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT 1200 ENVIRONMENT
      "OMP_WAIT_POLICY=passive;SKIPPY_BINARY=$<TARGET_FILE:skippy>;\
SKIPPY_MODELS=${CMAKE_SOURCE_DIR}/models;\
PYTHONPATH=${CMAKE_SOURCE_DIR}/tests/http;PYTHONDONTWRITEBYTECODE=1;\
SKIPPY_MODEL_GENERATOR=${SKIPPY_LLAMA_PREFIX}/bin/test-llama-archs;\
SKIPPY_MODEL_WRITER=$<TARGET_FILE:skippy-model-writer>;\
SKIPPY_RPC_WORKER=$<TARGET_FILE:rpc_worker>")
  endforeach()
endfunction()
