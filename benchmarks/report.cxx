/*
  The results as a Markdown table (to the screen, row by row, and to a file) and as JSON. Only rank 0 writes.
*/
#include "text.h"
#include <algorithm>

static const char kProgram[] = "finepc_bench";

/* --------------------------- what is derived from the measurements ---------------------------- */

const Timing *ResultBest(const Result &result)
{
  const Timing *best = nullptr;

  if (result.runs.size() == 1) return &result.runs[0];
  for (size_t k = 1; k < result.runs.size(); k++) {
    if (!best || result.runs[k].setup + result.runs[k].solve < best->setup + best->solve) best = &result.runs[k];
  }
  return best;
}

PetscLogDouble ResultMinimum(const std::vector<PetscLogDouble> &v)
{
  return v.empty() ? 0. : *std::min_element(v.begin(), v.end());
}

/* Of the second solve with the same KSP, where there was one: what a solver prepares once is not in it. */
static PetscLogDouble PerIteration(const Timing &timing)
{
  return timing.iterations > 0 ? (timing.again > 0. ? timing.again : timing.solve) / (PetscLogDouble)timing.iterations : 0.;
}

/* ------------------------------------------ Markdown ------------------------------------------ */

static const std::vector<Column> kColumns = {
  {"system", -20},       {"set", -16},       {"rows", 8},     {"nnz", 9},      {"first set-up ms", 15},
  {"set-up ms", 9},      {"refill ms", 9},   {"solve ms", 9}, {"total ms", 9}, {"its", 6},
  {"us/it", 8},          {"it floor %", 10}, {"density", 7},  {"apply us", 8}, {"apply MB", 8},
  {"apply floor %", 13}, {"true res", 8},    {"status", -8},  {"note", -4},
};

static std::string MarkdownRow(const Config &config, const System &system, const Result &result)
{
  const Timing        *best  = ResultBest(result);
  const PetscLogDouble apply = result.apply_seconds, per_iteration = best ? PerIteration(*best) : 0.;
  const PetscLogDouble apply_floor     = FloorFraction(config.backend, result.apply_bytes, apply),
                       iteration_floor = FloorFraction(config.backend, result.iteration_bytes, per_iteration);

  return MarkdownCells(kColumns, {
                                   system.name,
                                   result.set.label,
                                   Format("%.0f", (double)system.rows),
                                   Format("%.0f", (double)system.nnz),
                                   Cell("%.2f", result.runs.empty() ? 0. : 1e3 * result.runs[0].setup, !result.runs.empty()),
                                   Cell("%.2f", best ? 1e3 * best->setup : 0., best),
                                   Cell("%.2f", 1e3 * ResultMinimum(result.refill), !result.refill.empty()),
                                   Cell("%.2f", best ? 1e3 * best->solve : 0., best),
                                   Cell("%.2f", best ? 1e3 * (best->setup + best->solve) : 0., best),
                                   Cell("%.0f", best ? (double)best->iterations : 0., best),
                                   Cell("%.1f", 1e6 * per_iteration, per_iteration > 0.),
                                   Cell("%.0f", 100. * iteration_floor, iteration_floor > 0.),
                                   Cell("%.2f", result.density, result.density > 0.),
                                   Cell("%.1f", 1e6 * apply, apply > 0.),
                                   Cell("%.1f", 1e-6 * result.apply_bytes, result.apply_bytes > 0. && apply > 0.),
                                   Cell("%.0f", 100. * apply_floor, apply_floor > 0.),
                                   Cell("%.1e", best ? best->true_residual : 0., best),
                                   result.status,
                                   result.note,
                                 });
}

static std::string MarkdownPreamble(const Config &config)
{
  std::string text = MachineText(kProgram, config.backend, config.output);

  if (config.smooth) text += "Here u = x (x - 1) y (y - 1) exp(x y) in the place of 1: ";
  text += Format("b = A 1 or the file's own, x0 = 0, true residual %g; ", (double)config.true_rtol);
  text +=
    config.repeats ? Format("the best of %d warm runs, the first use apart.\n\n", (int)config.repeats) : "the first use alone.\n\n";
  return text;
}

PetscErrorCode ReportHeader(const Config &config)
{
  PetscFunctionBeginUser;
  PetscCall(PetscPrintf(PETSC_COMM_WORLD, "%s%s", MarkdownPreamble(config).c_str(), MarkdownHeader(kColumns).c_str()));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ReportRow(const Config &config, const System &system, const Result &result)
{
  PetscFunctionBeginUser;
  PetscCall(PetscPrintf(PETSC_COMM_WORLD, "%s", MarkdownRow(config, system, result).c_str()));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* -------------------------------------------- JSON -------------------------------------------- */

static void JsonTiming(JsonWriter *json, const char *key, const Timing &timing)
{
  json->Open(key, '{');
  json->Number("setup_s", timing.setup);
  json->Number("solve_s", timing.solve);
  json->Number("solve_again_s", timing.again);
  json->Integer("iterations", (double)timing.iterations);
  json->Number("true_residual", timing.true_residual);
  json->String("reason", KSPConvergedReasons[timing.reason]);
  json->Close('}');
}

static void JsonResult(JsonWriter *json, const Config &config, const Result &result)
{
  const Timing *best = ResultBest(result);

  json->Open(nullptr, '{');
  json->String("label", result.set.label);
  json->String("options", result.set.options);
  json->String("status", result.status);
  json->String("note", result.note);
  json->String("ksp_type", result.ksp_type);
  json->String("pc_type", result.pc_type);
  json->Bool("first_in_process", result.first_in_process);
  if (!result.runs.empty()) JsonTiming(json, "first", result.runs[0]);
  json->Open("warm", '[');
  for (size_t k = 1; k < result.runs.size(); k++) JsonTiming(json, nullptr, result.runs[k]);
  json->Close(']');
  if (best) {
    json->Number("setup_s", best->setup);
    json->Number("solve_s", best->solve);
    json->Number("total_s", best->setup + best->solve);
    json->Integer("iterations", (double)best->iterations);
    json->Number("true_residual", best->true_residual);
    json->Number("iteration_s", PerIteration(*best));
    json->Number("iteration_bytes", result.iteration_bytes);
    json->Number("iteration_floor_fraction", FloorFraction(config.backend, result.iteration_bytes, PerIteration(*best)));
  }
  json->Integer("logged_setups", (double)result.logged_setups); /* the events are of the fastest of them */
  json->Open("events", '[');
  for (const auto &event : result.events) {
    json->Open(nullptr, '{');
    json->String("name", event.name);
    json->Integer("count", (double)event.count);
    json->Number("s", event.seconds);
    json->Close('}');
  }
  json->Close(']');
  json->Numbers("refill_s", std::vector<double>(result.refill.begin(), result.refill.end()));
  json->Number("density", result.density);
  json->Number("apply_s", result.apply_seconds);
  json->Number("apply_bytes", result.apply_bytes);
  json->Number("apply_floor_fraction", FloorFraction(config.backend, result.apply_bytes, result.apply_seconds));
  json->Open("view", '[');
  for (const auto &line : result.view) json->String(nullptr, line);
  json->Close(']');
  json->Integer("history_stride", (double)result.history_stride);
  json->Numbers("history", std::vector<double>(result.history.begin(), result.history.end()));
  json->Close('}');
}

static std::string JsonReport(const Config &config, const std::vector<SystemResults> &all)
{
  JsonWriter json;

  json.Open(nullptr, '{');
  JsonMachine(&json, kProgram, config.backend, config.output);
  json.Number("true_rtol", config.true_rtol);
  json.Integer("repeats", (double)config.repeats);
  json.Open("systems", '[');
  for (const auto &entry : all) {
    const System &system = entry.system;

    json.Open(nullptr, '{');
    json.String("name", system.name);
    json.String("kind", system.kind);
    json.Integer("rows", (double)system.rows);
    json.Integer("nnz", system.nnz);
    json.Number("load_s", system.load_seconds);
    json.Number("matmult_s", system.matmult_seconds);
    json.Number("matmult_bytes", system.matmult_bytes);
    json.Number("matmult_floor_fraction", FloorFraction(config.backend, system.matmult_bytes, system.matmult_seconds));
    json.Open("results", '[');
    for (const auto &result : entry.results) JsonResult(&json, config, result);
    json.Close(']');
    json.Close('}');
  }
  json.Close(']');
  json.Close('}');
  return json.text + "\n";
}

PetscErrorCode ReportFiles(const Config &config, const std::vector<SystemResults> &all)
{
  PetscMPIInt rank;

  PetscFunctionBeginUser;
  PetscCallMPI(MPI_Comm_rank(PETSC_COMM_WORLD, &rank));
  if (rank) PetscFunctionReturn(PETSC_SUCCESS);
  if (!config.output.json_file.empty()) PetscCall(WriteFile(config.output.json_file, JsonReport(config, all)));
  if (!config.output.md_file.empty()) {
    std::string text = MarkdownPreamble(config) + MarkdownHeader(kColumns);

    for (const auto &entry : all) {
      for (const auto &result : entry.results) text += MarkdownRow(config, entry.system, result);
    }
    PetscCall(WriteFile(config.output.md_file, text));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
