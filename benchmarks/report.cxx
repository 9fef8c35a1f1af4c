/*
  The results as a Markdown table (to the screen, row by row, and to a file) and as JSON, with the machine, the versions and the
  commit. Only rank 0 writes.
*/
#include "bench.h"
#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

/* ------------------------------------------- text --------------------------------------------- */

static std::string Format(const char *format, ...) __attribute__((format(printf, 1, 2)));

static std::string Format(const char *format, ...)
{
  char         text[2048];
  std::va_list args;

  va_start(args, format);
  std::vsnprintf(text, sizeof(text), format, args);
  va_end(args);
  return text;
}

/* a number, or an empty text where the number was not measured */
static std::string Cell(const char *format, PetscLogDouble value, bool known)
{
  char text[64];

  std::snprintf(text, sizeof(text), format, value);
  return known ? text : "";
}

static std::string Now()
{
  const std::time_t now = std::time(nullptr);
  char              text[64];

  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return text;
}

static std::string PetscVersionText()
{
  return Format("%d.%d.%d", PETSC_VERSION_MAJOR, PETSC_VERSION_MINOR, PETSC_VERSION_SUBMINOR);
}

static PetscMPIInt Ranks()
{
  PetscMPIInt size = 1;

  (void)MPI_Comm_size(PETSC_COMM_WORLD, &size);
  return size;
}

/* --------------------------- what is derived from the measurements ---------------------------- */

/* The fastest warm run, or the first use when there is no warm run */
static const Timing *ResultBest(const Result &result)
{
  const Timing *best = nullptr;

  if (result.runs.size() == 1) return &result.runs[0];
  for (size_t k = 1; k < result.runs.size(); k++) {
    if (!best || result.runs[k].setup + result.runs[k].solve < best->setup + best->solve) best = &result.runs[k];
  }
  return best;
}

/* 0 for none */
static PetscLogDouble ResultMinimum(const std::vector<PetscLogDouble> &v)
{
  return v.empty() ? 0. : *std::min_element(v.begin(), v.end());
}

/* Seconds, of the second solve with the same KSP where there was one: what a solver prepares once is not in that. */
static PetscLogDouble PerIteration(const Timing &timing)
{
  return timing.iterations > 0 ? (timing.again > 0. ? timing.again : timing.solve) / (PetscLogDouble)timing.iterations : 0.;
}

/* The words about several right-hand sides beside one, or none. */
static std::string AboutColumns(const Config &config, const Result &result, PetscLogDouble one)
{
  if (result.columns_seconds <= 0. || result.columns_its < 1) return "";
  const PetscLogDouble all  = result.columns_seconds / result.columns_its;
  std::string          text = Format("%.0f right-hand sides: ", (double)config.columns) + Format("%.1f us/it, ", 1e6 * all);

  if (one > 0.) text += Format("%.2f times one, ", all / one);
  text += Format("%.0f its, ", (double)result.columns_its) + Format("true res %.1e", (double)result.columns_residual);
  return text;
}

/* The words about energy, or none. */
static std::string AboutEnergy(const Result &result)
{
  return result.solve_joules > 0. ? Format("set-up %.3g J, ", result.setup_joules) + Format("solve %.3g J", result.solve_joules)
                                  : "";
}

/* What stands in the last column: words, with a semicolon between them. */
static std::string Notes(const std::vector<std::string> &words)
{
  std::string text;

  for (const auto &word : words) text += (text.empty() || word.empty() ? "" : "; ") + word;
  return text;
}

/* ------------------------------------------ Markdown ------------------------------------------ */

struct Column {
  const char *title;
  int         width; /* negative: the cells are aligned to the left */
};

static const std::vector<Column> kColumns = {
  {"system", -20},  {"set", -16},          {"rows", 8},     {"nnz", 9},         {"first set-up ms", 15},
  {"set-up ms", 9}, {"refill ms", 9},      {"solve ms", 9}, {"total ms", 9},    {"its", 6},
  {"us/it", 8},     {"it floor %", 10},    {"density", 7},  {"complexity", 10}, {"apply us", 8},
  {"apply MB", 8},  {"apply floor %", 13}, {"true res", 8}, {"status", -8},     {"note", -4},
};

static std::string MarkdownHeader()
{
  std::string titles = "|", rule = "|";

  for (const auto &column : kColumns) {
    titles += Format(" %*s |", column.width, column.title);
    rule += column.width < 0 ? ":" + std::string((size_t)(1 - column.width), '-') + "|"
                             : std::string((size_t)(column.width + 1), '-') + ":|";
  }
  return titles + "\n" + rule + "\n";
}

static std::string MarkdownCells(const std::vector<std::string> &cells)
{
  std::string row = "|";

  for (size_t k = 0; k < cells.size(); k++) {
    std::string cell = cells[k];

    std::replace(cell.begin(), cell.end(), '|', '/'); /* a bar would end the cell */
    row += Format(" %*s |", kColumns[k].width, cell.c_str());
  }
  return row + "\n";
}

static std::string MarkdownRow(const Config &config, const System &system, const Result &result)
{
  const Timing        *best  = ResultBest(result);
  const PetscLogDouble apply = result.apply_seconds, per_iteration = best ? PerIteration(*best) : 0.;
  const PetscLogDouble apply_floor     = FloorFraction(config.backend, result.apply_bytes, apply),
                       iteration_floor = FloorFraction(config.backend, result.iteration_bytes, per_iteration);

  return MarkdownCells({
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
    Cell("%.2f", result.complexity, result.complexity > 0.),
    Cell("%.1f", 1e6 * apply, apply > 0.),
    Cell("%.1f", 1e-6 * result.apply_bytes, result.apply_bytes > 0. && apply > 0.),
    Cell("%.0f", 100. * apply_floor, apply_floor > 0.),
    Cell("%.1e", best ? best->true_residual : 0., best),
    result.status,
    Notes({AboutEnergy(result), AboutColumns(config, result, per_iteration), result.note}),
  });
}

static std::string MarkdownPreamble(const Config &config)
{
  const Backend &backend = config.backend;
  const int      size    = Ranks();
  std::string    text    = Format("finepc_bench: backend %s, %s", backend.cuda ? "cuda" : "host", backend.device.c_str());

  if (backend.cuda && !backend.petsc) text += " (PETSc has no CUDA: matrices of the host are sent)";
  if (!backend.driver.empty()) text += ", driver " + backend.driver;
  text += Format(", %d %s", size, size == 1 ? "rank" : "ranks");
  if (backend.copy_gbs > 0) text += Format(", copy %.0f GB/s", backend.copy_gbs);
  text += Format(", PETSc %s, commit %s, %s.\n", PetscVersionText().c_str(), config.commit.c_str(), Now().c_str());
  if (config.smooth) text += "Here u = x (x - 1) y (y - 1) exp(x y) in the place of 1: ";
  text += Format("b = A 1 or the file's own, x0 = 0, true residual %g; ", (double)config.true_rtol);
  text +=
    config.repeats ? Format("the best of %d warm runs, the first use apart.\n\n", (int)config.repeats) : "the first use alone.\n\n";
  return text;
}

PetscErrorCode ReportHeader(const Config &config)
{
  PetscFunctionBeginUser;
  PetscCall(PetscPrintf(PETSC_COMM_WORLD, "%s%s", MarkdownPreamble(config).c_str(), MarkdownHeader().c_str()));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ReportRow(const Config &config, const System &system, const Result &result)
{
  PetscFunctionBeginUser;
  PetscCall(PetscPrintf(PETSC_COMM_WORLD, "%s", MarkdownRow(config, system, result).c_str()));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* -------------------------------------------- JSON -------------------------------------------- */

using Json = nlohmann::ordered_json; /* its keys stay in the order in which they were added */

/* Rounded to so many significant digits; numbers that are not finite become null in the file. */
static double Rounded(double value, int digits = 9)
{
  return std::strtod(Format("%.*g", digits, value).c_str(), nullptr);
}

static Json RoundedAll(const std::vector<double> &values)
{
  Json json = Json::array();

  for (const double value : values) json.push_back(Rounded(value, 6));
  return json;
}

static Json TimingJson(const Timing &timing)
{
  Json later = Json::array(); /* the second solve with the same KSP, and those after it */

  for (const auto &again : timing.later) later.push_back({{"s", Rounded(again.seconds)}, {"iterations", again.iterations}});
  return {{"setup_s", Rounded(timing.setup)},
          {"solve_s", Rounded(timing.solve)},
          {"solve_again_s", Rounded(timing.again)},
          {"later", later},
          {"iterations", timing.iterations},
          {"true_residual", Rounded(timing.true_residual)},
          {"reason", KSPConvergedReasons[timing.reason]}};
}

static Json EventsJson(const std::vector<Event> &events)
{
  Json list = Json::array();

  for (const auto &event : events) list.push_back({{"name", event.name}, {"count", event.count}, {"s", Rounded(event.seconds)}});
  return list;
}

static Json ResultJson(const Config &config, const Result &result)
{
  const Timing *best = ResultBest(result);
  Json          json, warm = Json::array();

  for (size_t k = 1; k < result.runs.size(); k++) warm.push_back(TimingJson(result.runs[k]));
  json["label"]            = result.set.label;
  json["options"]          = result.set.options;
  json["status"]           = result.status;
  json["note"]             = result.note;
  json["ksp_type"]         = result.ksp_type;
  json["pc_type"]          = result.pc_type;
  json["first_in_process"] = result.first_in_process;
  if (!result.runs.empty()) json["first"] = TimingJson(result.runs[0]);
  json["warm"] = warm;
  if (best) {
    const PetscLogDouble per_iteration = PerIteration(*best);

    json["setup_s"]                  = Rounded(best->setup);
    json["solve_s"]                  = Rounded(best->solve);
    json["total_s"]                  = Rounded(best->setup + best->solve);
    json["iterations"]               = best->iterations;
    json["true_residual"]            = Rounded(best->true_residual);
    json["iteration_s"]              = Rounded(per_iteration);
    json["iteration_bytes"]          = Rounded(result.iteration_bytes);
    json["iteration_floor_fraction"] = Rounded(FloorFraction(config.backend, result.iteration_bytes, per_iteration));
  }
  if (config.columns > 0 && result.columns_seconds > 0. && result.columns_its > 0) {
    const PetscLogDouble one = best ? PerIteration(*best) : 0., all = result.columns_seconds / result.columns_its;

    json["columns"]               = config.columns;
    json["columns_solve_s"]       = Rounded(result.columns_seconds);
    json["columns_iterations"]    = result.columns_its;
    json["columns_iteration_s"]   = Rounded(all);
    json["columns_over_one"]      = Rounded(one > 0. ? all / one : 0.);
    json["columns_true_residual"] = Rounded(result.columns_residual);
    json["columns_view"]          = result.columns_view;
  }
  if (result.solve_joules > 0.) {
    json["setup_j"] = Rounded(result.setup_joules);
    json["solve_j"] = Rounded(result.solve_joules);
  }
  json["logged_setups"]        = result.logged_setups; /* the events are those of the fastest of so many */
  json["events"]               = EventsJson(result.events);
  json["refill_s"]             = RoundedAll(result.refill);
  json["density"]              = Rounded(result.density);
  json["complexity"]           = Rounded(result.complexity);
  json["apply_s"]              = Rounded(result.apply_seconds);
  json["apply_bytes"]          = Rounded(result.apply_bytes);
  json["apply_floor_fraction"] = Rounded(FloorFraction(config.backend, result.apply_bytes, result.apply_seconds));
  json["memory_bytes"]         = Rounded(result.memory_bytes);
  json["communication"]        = result.communication;
  json["view"]                 = result.view;
  json["history_stride"]       = result.history_stride;
  json["history"]              = RoundedAll(result.history);
  return json;
}

static Json SystemJson(const Config &config, const SystemResults &entry)
{
  const System &system  = entry.system;
  Json          results = Json::array();

  for (const auto &result : entry.results) results.push_back(ResultJson(config, result));
  return {{"name", system.name},
          {"kind", system.kind},
          {"rows", system.rows},
          {"nnz", (std::int64_t)system.nnz},
          {"load_s", Rounded(system.load_seconds)},
          {"matmult_s", Rounded(system.matmult_seconds)},
          {"matmult_bytes", Rounded(system.matmult_bytes)},
          {"matmult_floor_fraction", Rounded(FloorFraction(config.backend, system.matmult_bytes, system.matmult_seconds))},
          {"results", results}};
}

static Json ReportJson(const Config &config, const std::vector<SystemResults> &all)
{
  Json systems = Json::array();

  for (const auto &entry : all) systems.push_back(SystemJson(config, entry));
  return {{"program", "finepc_bench"},
          {"date", Now()},
          {"commit", config.commit},
          {"petsc", PetscVersionText()},
          {"backend", config.backend.cuda ? "cuda" : "host"},
          {"device", config.backend.device},
          {"driver", config.backend.driver},
          {"ranks", Ranks()},
          {"copy_GBps", Rounded(config.backend.copy_gbs)},
          {"true_rtol", Rounded(config.true_rtol)},
          {"repeats", config.repeats},
          {"systems", systems}};
}

/*
  Writes a file beside and gives it the name when all of it is there: the file that was there before stays until then. What is no
  ordinary file, a terminal or a pipe, is written to as it is.
*/
static PetscErrorCode WriteFile(const std::string &path, const std::string &text)
{
  std::error_code   error;
  const bool        link     = std::filesystem::is_symlink(path, error);
  const std::string target   = link ? std::filesystem::weakly_canonical(path, error).string() : path;
  const bool        ordinary = !std::filesystem::exists(target, error) || std::filesystem::is_regular_file(target, error);
  const std::string beside   = ordinary ? target + ".new" : path;

  PetscFunctionBeginUser;
  errno                    = 0;
  std::FILE *const file    = std::fopen(beside.c_str(), "w");
  const bool       written = file && std::fputs(text.c_str(), file) >= 0;
  const bool       closed  = file && !std::fclose(file);
  const bool       named   = written && closed && (!ordinary || !std::rename(beside.c_str(), target.c_str()));
  const int        why     = errno;
  if (!named && file && ordinary) std::remove(beside.c_str());
  PetscCheck(named, PETSC_COMM_SELF, PETSC_ERR_FILE_WRITE, "Cannot write \"%s\": %s", path.c_str(), std::strerror(why));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ReportFiles(const Config &config, const std::vector<SystemResults> &all)
{
  PetscMPIInt rank;

  PetscFunctionBeginUser;
  PetscCallMPI(MPI_Comm_rank(PETSC_COMM_WORLD, &rank));
  if (rank) PetscFunctionReturn(PETSC_SUCCESS);
  if (!config.json_file.empty()) { /* bytes that are not UTF-8, such as those of an error message that was cut, are replaced */
    PetscCall(WriteFile(config.json_file, ReportJson(config, all).dump(1, ' ', false, Json::error_handler_t::replace) + "\n"));
  }
  if (!config.md_file.empty()) {
    std::string text = MarkdownPreamble(config) + MarkdownHeader();

    for (const auto &entry : all) {
      for (const auto &result : entry.results) text += MarkdownRow(config, entry.system, result);
    }
    PetscCall(WriteFile(config.md_file, text));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
