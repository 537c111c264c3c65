"""What Adobe documents about Workfront's objects: their codes, versions and fields.

These are facts of Adobe's public pages about event subscriptions. The lists grow, so nothing is
refused because of them: they serve warnings (``policy.workfront_warnings``) and samples
(``policy.workfront_sample``). An object without fields here is documented without a list.
"""

from __future__ import annotations

from msgspec import Struct

EVENT_TYPES = ("CREATE", "UPDATE", "DELETE")


class WorkfrontObject(Struct, frozen=True):
    """An object code with what is known about it."""

    name: str
    fields: tuple[str, ...] = ()
    needs_v2: bool = False
    unfilterable: frozenset[str] = frozenset()  # fields that no filter can use
    only_changed: frozenset[str] = frozenset()  # fields that only `changed` can use


def _object(
    name: str,
    fields: str = "",
    *,
    v2: bool = False,
    unfilterable: str = "",
    only_changed: str = "",
) -> WorkfrontObject:
    return WorkfrontObject(
        name,
        tuple(fields.split()),
        v2,
        frozenset(unfilterable.split()),
        frozenset(only_changed.split()),
    )


OBJECTS: dict[str, WorkfrontObject] = {
    "PROJ": _object(
        "project",
        "ID accessorIDs alignmentScoreCardID approvalProcessID attachedRateCardID categoryID"
        " companyID convertedOpTaskID convertedOpTaskOriginatorID currency currentApprovalStepID"
        " customerID deliverableScoreCardID description enteredByID entryDate extRefID groupID"
        " issueWorkflowAutomationID lastConditionNoteID lastNoteID lastUpdateDate lastUpdatedByID"
        " milestonePathID name objCode ownerID parameterValues plannedCompletionDate popAccountID"
        " priority programID queueDefID referenceNumber rejectionIssueID resourcePoolID rootGroupID"
        " scheduleID sponsorID status submittedByID taskWorkflowAutomationID teamID templateID"
        " workflowAutomationID",
    ),
    "TASK": _object(
        "task",
        "ID accessorIDs approvalProcessID assignedToID billingRecordID categoryID convertedOpTaskID"
        " convertedOpTaskOriginatorID currentApprovalStepID customerID description enteredByID"
        " entryDate extRefID groupID iterationID kanbanBoardID lastConditionNoteID lastNoteID"
        " lastUpdateDate lastUpdatedByID milestoneID name objCode parameterValues parentID"
        " plannedCompletionDate priority projectID recurrenceRuleID referenceNumber"
        " rejectionIssueID roleID rootGroupID securityRootID status submittedByID teamID"
        " templateTaskID workflowAutomationID",
    ),
    "OPTASK": _object(
        "issue",
        "ID accessorIDs approvalProcessID assignedToID categoryID currentApprovalStepID customerID"
        " description enteredByID entryDate extRefID groupID iterationID kanbanBoardID"
        " lastConditionNoteID lastNoteID lastUpdateDate lastUpdatedByID name objCode ownerID"
        " parameterValues plannedCompletionDate priority projectID queueDefID queueTopicID"
        " referenceNumber referenceObjID rejectionIssueID resolveOpTaskID resolveProjectID"
        " resolveTaskID resolvingObjID roleID rootGroupID securityRootID sourceObjID sourceTaskID"
        " status submittedByID teamID workflowAutomationID",
    ),
    "ASSGN": _object(
        "assignment",
        "ID actualWorkCompleted actualWorkPerDayStartDate assignedByID assignedToID"
        " assignmentPercent avgWorkPerDay classifierID customerID isPrimary isTeamAssignment"
        " objCode opTaskID parameterValues projectID projectedAvgWorkPerDay"
        " projectedUserAllocationPercentage roleID securityRootID status taskID teamID work"
        " workPerDayList workRequired",
    ),
    "CMPY": _object(
        "company",
        "ID categoryID customerID enteredByID extRefID groupID lastUpdateDate lastUpdatedByID name"
        " objCode parameterValues",
    ),
    "PTLTAB": _object(
        "dashboard",
        "ID accessorIDs customerID description docID extRefID lastUpdateDate lastUpdatedByID name"
        " objCode portalProfileID userID",
    ),
    "DOCU": _object(
        "document",
        "ID accessorIDs categoryID currentVersionID customer:isAdvancedDocMgmtEnabled customerID"
        " description documentRequestID extRefID groups iterationID lastNoteID lastUpdateDate"
        " lastUpdatedByID name noteID objCode objID opTaskID ownerID parameterValues portfolioID"
        " programID projectID referenceNumber referenceObjID releaseVersionID securityRootID taskID"
        " templateID templateTaskID topObjID userID",
        unfilterable="groups",
    ),
    "DOCV": _object(
        "document version",
        "ID accessorIDs activeProofStages customerID docSize documentID documentProviderID"
        " enteredByID entryDate ext externalIntegrationType externalStorageID fileName fileType"
        " location objCode proofApprovalStatusID proofDeadlineDate proofDecision proofID proofName"
        " proofOwnerID proofPages proofProgress proofStageID proofedByUserID version",
    ),
    "EXPNS": _object(
        "expense",
        "ID actualAmount actualUnitAmount billingRecordID categoryID customFormsIDs customerID"
        " description effectiveDate enteredByID entryDate expObjCode expenseTypeID extRefID"
        " isBillable isReimbursable isReimbursed lastUpdateDate lastUpdatedByID objCode objID"
        " objectCategories parameterValues plannedAmount plannedDate plannedUnitAmount projectID"
        " referenceObjCode referenceObjID referenceObjectName securityRootID taskID templateID"
        " templateTaskID topObjCode topObjID topReferenceObjCode topReferenceObjID",
    ),
    "HOUR": _object(
        "hour",
        "ID accessorIDs actualCost approvedByID approvedOnDate billingRecordID customerID"
        " description dupID entryDate extRefID externalTimesheetID hourTypeID hours lastUpdateDate"
        " lastUpdatedByID objCode opTaskID ownerID projectID projectOverheadID referenceObjCode"
        " referenceObjID roleID securityRootID status taskID timesheetID",
    ),
    "NOTE": _object(
        "note",
        "ID accessorIDs attachDocumentID attachObjID attachOpTaskID attachWorkID attachWorkUserID"
        " auditRecordID customerID documentID entryDate extRefID externalServiceID iterationID"
        " noteText objCode objID opTaskID ownerID parentEndorsementID parentJournalEntryID"
        " parentNoteID portfolioID programID projectID proofActionID richTextNoteID securityRootID"
        " subject taskID templateID templateTaskID threadID timesheetID topObjID userID",
    ),
    "PORT": _object(
        "portfolio",
        "ID accessorIDs alignmentScoreCardID categoryID customerID description enteredByID"
        " entryDate extRefID groupID lastUpdateDate lastUpdatedByID name objCode ownerID"
        " parameterValues",
    ),
    "PRGM": _object(
        "program",
        "ID accessorIDs categoryID customerID description enteredByID extRefID groupID"
        " lastUpdateDate lastUpdatedByID name objCode ownerID parameterValues portfolioID"
        " securityRootID",
    ),
    "PRFAPL": _object(
        "proof approval",
        "ID accessorIDs approverDecision approverID customerID documentID documentVersionID"
        " isAwaitingDecision objCode proofCreationDate requesterID",
    ),
    "PTLSEC": _object(
        "report",
        "ID accessorIDs appGlobalID customerID description enteredByID extRefID filterID groupByID"
        " lastUpdateDate lastUpdatedByID lastViewedByID name objCode objID preferenceID"
        " publicRunAsUserID reportFolderID runAsUserID scheduledReportID securityRootID uiObjCode"
        " viewID",
    ),
    "TMPL": _object(
        "template",
        "ID accessorIDs approvalProcessID categoryID companyID customerID deliverableScoreCardID"
        " description enteredByID entryDate extRefID groupID issueWorkflowAutomationID lastNoteID"
        " lastUpdateDate lastUpdatedByID milestonePathID name objCode ownerID parameterValues"
        " portfolioID priority programID queueDefID referenceNumber scheduleID sponsorID"
        " taskWorkflowAutomationID teamID workflowAutomationID",
    ),
    "TSHET": _object(
        "timesheet",
        "ID approverID approversListString customerID displayName endDate extRefID hasNotes"
        " hoursDuration isEditable lastNoteID lastUpdateDate lastUpdatedByID objCode overtimeHours"
        " regularHours startDate status timesheetProfileID totalHours userID",
    ),
    "USER": _object(
        "user",
        "ID accessLevelID categoryID companyID customerID defaultHourTypeID delegationToID"
        " eauthUserID emailAddr enteredByID extRefID homeGroupID homeTeamID isActive"
        " lastEnteredNoteID lastLoginDate lastNoteID lastUpdateDate lastUpdatedByID"
        " latestUpdateNoteID layoutTemplateID logTimeInDays managerID name objCode parameterValues"
        " portalProfileID resourcePoolID roleID scheduleID timesheetProfileID title uiTemplateID"
        " userRoles uumUserID workHoursPerDay",
        only_changed="userRoles",
    ),
    "FIELD": _object(
        "field",
        "createdAt createdBy customerId dateOptions description displayName formulaOptions hasError"
        " linkedField lookupOptions numberOptions objCode options referenceOptions type updatedAt"
        " updatedBy userOptions",
        v2=True,
    ),
    "RECORD": _object(
        "record",
        "id createdAt createdBy customerId data objCode recordExternalOptions recordTypeId"
        " updatedAt",
        v2=True,
        unfilterable="data",
    ),
    "RECORD_TYPE": _object(
        "record type",
        "id color createdAt createdBy customerId data description displayName externalOptions"
        " fields icon isExternal isTaxonomy objCode permission primaryFieldId recordsCount"
        " updatedAt updatedBy",
        v2=True,
        unfilterable="data fields",
    ),
    "WORKSPACE": _object(
        "workspace",
        "id color createdAt createdBy customerId icon name objCode permission recordTypes updatedAt"
        " updatedBy",
        v2=True,
    ),
    "approval": _object("approval", v2=True),
    "approval_stage": _object("approval stage", v2=True),
    "approval_stage_participant": _object("participant of an approval stage", v2=True),
    "STAFFP": _object("staffing plan", v2=True),
    "STAFFR": _object("part of a staffing plan", v2=True),
    "SPVAL": _object("part of a staffing plan", v2=True),
    "SPAVAL": _object("part of a staffing plan", v2=True),
    "SAVSET": _object("part of a staffing plan", v2=True),
    "SRPVAL": _object("part of a staffing plan", v2=True),
    "PARAM": _object("custom field"),
    "CTGY": _object("custom form"),
}
