// What the thread sanitizer must not report. llama.cpp and its OpenMP run time are built without
// it, so that their barriers are invisible and every graph looks like a race between its workers.
extern "C" const char* __tsan_default_suppressions();

extern "C" const char* __tsan_default_suppressions() {
  return "race:^ggml_\n"
         "race:^llama_\n"
         "race:^llm_graph\n"
         "race:^void set_input_\n";
}
