# Copies the tests to DIRECTORY and installs the pinned clients there, once for each lock file.
if(NOT NPM)
  message(FATAL_ERROR "npm was not found when this build was configured: tools/setup.sh --tests")
endif()
file(COPY ${SOURCE}/ DESTINATION ${DIRECTORY}
  FILES_MATCHING PATTERN "*.mjs" PATTERN "package*.json")
file(SHA256 ${SOURCE}/package-lock.json wanted)
set(stamp ${DIRECTORY}/installed)
if(EXISTS ${stamp})
  file(READ ${stamp} installed)
endif()
if(NOT "${installed}" STREQUAL "${wanted}")
  execute_process(COMMAND ${NPM} ci --ignore-scripts --no-audit --no-fund
    WORKING_DIRECTORY ${DIRECTORY} COMMAND_ERROR_IS_FATAL ANY)
  file(WRITE ${stamp} "${wanted}")
endif()
