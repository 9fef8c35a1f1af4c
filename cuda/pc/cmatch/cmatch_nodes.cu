/* The CUDA twin of cmatch_nodes_host.cxx: there is none as yet, and PCCMATCHChooseNodes() takes rows on a GPU. */
#include "pc/cmatch/cmatch_nodes.h"

PetscErrorCode CMATCHNodesCompute_CUDA(const CSRView *, const CMATCHModes *, const CMATCHParams *, PetscBool, PetscBool,
                                       CMATCHHierarchy **, CMATCHStats *)
{
  SETERRQ(PETSC_COMM_SELF, PETSC_ERR_SUP, "A hierarchy of nodes is on the host as yet");
}
