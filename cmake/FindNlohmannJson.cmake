# Gives the target openjev::json: the header from the Python package nlohmann-json (a build requirement), or from the system.
set(_wheel "")
if(Python_EXECUTABLE)
  execute_process(OUTPUT_VARIABLE _wheel OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND ${Python_EXECUTABLE} -c
    "import os,sys;print(next((p for p in (os.path.join(s,'nlohmann_json','include') for s in sys.path) if os.path.isdir(p)),''))")
endif()
find_path(NlohmannJson_INCLUDE_DIR nlohmann/json.hpp HINTS ${_wheel})
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NlohmannJson REQUIRED_VARS NlohmannJson_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "pip install nlohmann-json, or install the system package nlohmann-json3-dev")
if(NlohmannJson_FOUND AND NOT TARGET openjev::json)
  add_library(openjev::json INTERFACE IMPORTED)
  target_include_directories(openjev::json SYSTEM INTERFACE ${NlohmannJson_INCLUDE_DIR})
endif()
