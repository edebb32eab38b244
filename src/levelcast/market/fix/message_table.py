"""Layouts of messages: header, trailer, session messages and the application messages of an order-entry gateway.

A row is the MsgType, the name and the fields in the specification's order. `!` marks a required field, `Count (…)` a
repeating group with its count, `{Block}` a block of fields that several messages share. A row may continue on the next
line, which is indented. `dictionary` reads the rows.

Deviations from the specification:

- Symbol is optional in Instrument, as in the dictionaries of common engines: a security identifier may take its place.
- The message types of FIX 4.4 without a row here are known by name only. The session answers such a message with
  a BusinessMessageReject (unsupported message type).
"""

from __future__ import annotations

HEADER = """
    BeginString! BodyLength! MsgType! SenderCompID! TargetCompID! OnBehalfOfCompID DeliverToCompID SecureDataLen
    SecureData MsgSeqNum! SenderSubID SenderLocationID TargetSubID TargetLocationID OnBehalfOfSubID
    OnBehalfOfLocationID DeliverToSubID DeliverToLocationID PossDupFlag PossResend SendingTime! OrigSendingTime
    XmlDataLen XmlData MessageEncoding LastMsgSeqNumProcessed NoHops (HopCompID HopSendingTime HopRefID)
"""

TRAILER = """
    SignatureLength Signature CheckSum!
"""

MESSAGES = """
0 Heartbeat: TestReqID
1 TestRequest: TestReqID!
2 ResendRequest: BeginSeqNo! EndSeqNo!
3 Reject: RefSeqNum! RefTagID RefMsgType SessionRejectReason Text EncodedTextLen EncodedText
4 SequenceReset: GapFillFlag NewSeqNo!
5 Logout: Text EncodedTextLen EncodedText
8 ExecutionReport: OrderID! SecondaryOrderID SecondaryClOrdID SecondaryExecID ClOrdID OrigClOrdID ClOrdLinkID
    QuoteRespID OrdStatusReqID MassStatusReqID TotNumReports LastRptRequested {Parties} TradeOriginationDate
    {ContraGrp} ListID CrossID OrigCrossID CrossType ExecID! ExecRefID ExecType! OrdStatus! WorkingIndicator
    OrdRejReason ExecRestatementReason Account AcctIDSource AccountType DayBookingInst BookingUnit PreallocMethod
    SettlType SettlDate CashMargin ClearingFeeIndicator {Instrument}! {FinancingDetails} {UndInstrmtGrp} Side!
    {Stipulations} QtyType {OrderQtyData} OrdType PriceType Price StopPx {PegInstructions} {DiscretionInstructions}
    PeggedPrice DiscretionPrice TargetStrategy TargetStrategyParameters ParticipationRate TargetStrategyPerformance
    Currency ComplianceID SolicitedFlag TimeInForce EffectiveTime ExpireDate ExpireTime ExecInst OrderCapacity
    OrderRestrictions CustOrderCapacity LastQty UnderlyingLastQty LastPx UnderlyingLastPx LastParPx LastSpotRate
    LastForwardPoints LastMkt TradingSessionID TradingSessionSubID TimeBracket LastCapacity LeavesQty! CumQty!
    AvgPx! DayOrderQty DayCumQty DayAvgPx GTBookingInst TradeDate TransactTime ReportToExch {CommissionData}
    {SpreadOrBenchmarkCurveData} {YieldData} GrossTradeAmt NumDaysInterest ExDate AccruedInterestRate
    AccruedInterestAmt InterestAtMaturity EndAccruedInterestAmt StartCash EndCash TradedFlatSwitch BasisFeatureDate
    BasisFeaturePrice Concession TotalTakedown NetMoney SettlCurrAmt SettlCurrency SettlCurrFxRate
    SettlCurrFxRateCalc HandlInst MinQty MaxFloor PositionEffect MaxShow BookingType Text EncodedTextLen EncodedText
    SettlDate2 OrderQty2 LastForwardPoints2 MultiLegReportingType CancellationRights MoneyLaunderingStatus RegistID
    Designation TransBkdTime ExecValuationPoint ExecPriceType ExecPriceAdjustment PriorityIndicator PriceImprovement
    LastLiquidityInd {ContAmtGrp} {InstrmtLegExecGrp} CopyMsgIndicator {MiscFeesGrp}
9 OrderCancelReject: OrderID! SecondaryOrderID SecondaryClOrdID ClOrdID! ClOrdLinkID OrigClOrdID! OrdStatus!
    WorkingIndicator OrigOrdModTime ListID Account AcctIDSource AccountType TradeOriginationDate TradeDate
    TransactTime CxlRejResponseTo! CxlRejReason Text EncodedTextLen EncodedText
A Logon: EncryptMethod! HeartBtInt! RawDataLength RawData ResetSeqNumFlag NextExpectedMsgSeqNum MaxMessageSize
    NoMsgTypes (RefMsgType MsgDirection) TestMessageIndicator Username Password
D NewOrderSingle: ClOrdID! SecondaryClOrdID ClOrdLinkID {Parties} TradeOriginationDate TradeDate Account
    AcctIDSource AccountType DayBookingInst BookingUnit PreallocMethod AllocID {PreAllocGrp} SettlType SettlDate
    CashMargin ClearingFeeIndicator HandlInst ExecInst MinQty MaxFloor ExDestination {TrdgSesGrp} ProcessCode
    {Instrument}! {FinancingDetails} {UndInstrmtGrp} PrevClosePx Side! LocateReqd TransactTime! {Stipulations}
    QtyType {OrderQtyData}! OrdType! PriceType Price StopPx {SpreadOrBenchmarkCurveData} {YieldData} Currency
    ComplianceID SolicitedFlag IOIID QuoteID TimeInForce EffectiveTime ExpireDate ExpireTime GTBookingInst
    {CommissionData} OrderCapacity OrderRestrictions CustOrderCapacity ForexReq SettlCurrency BookingType Text
    EncodedTextLen EncodedText SettlDate2 OrderQty2 Price2 PositionEffect CoveredOrUncovered MaxShow
    {PegInstructions} {DiscretionInstructions} TargetStrategy TargetStrategyParameters ParticipationRate
    CancellationRights MoneyLaunderingStatus RegistID Designation
F OrderCancelRequest: OrigClOrdID! OrderID ClOrdID! SecondaryClOrdID ClOrdLinkID ListID OrigOrdModTime Account
    AcctIDSource AccountType {Parties} {Instrument}! {FinancingDetails} {UndInstrmtGrp} Side! TransactTime!
    {OrderQtyData}! ComplianceID Text EncodedTextLen EncodedText
G OrderCancelReplaceRequest: OrderID {Parties} TradeOriginationDate TradeDate OrigClOrdID! ClOrdID!
    SecondaryClOrdID ClOrdLinkID ListID OrigOrdModTime Account AcctIDSource AccountType DayBookingInst BookingUnit
    PreallocMethod AllocID {PreAllocGrp} SettlType SettlDate CashMargin ClearingFeeIndicator HandlInst ExecInst
    MinQty MaxFloor ExDestination {TrdgSesGrp} {Instrument}! {FinancingDetails} {UndInstrmtGrp} Side! TransactTime!
    QtyType {OrderQtyData}! OrdType! PriceType Price StopPx {SpreadOrBenchmarkCurveData} {YieldData}
    {PegInstructions} {DiscretionInstructions} TargetStrategy TargetStrategyParameters ParticipationRate
    ComplianceID SolicitedFlag Currency TimeInForce EffectiveTime ExpireDate ExpireTime GTBookingInst
    {CommissionData} OrderCapacity OrderRestrictions CustOrderCapacity ForexReq SettlCurrency BookingType Text
    EncodedTextLen EncodedText SettlDate2 OrderQty2 Price2 PositionEffect CoveredOrUncovered MaxShow LocateReqd
    CancellationRights MoneyLaunderingStatus RegistID Designation
H OrderStatusRequest: OrderID ClOrdID! SecondaryClOrdID ClOrdLinkID {Parties} OrdStatusReqID Account
    AcctIDSource {Instrument}! {FinancingDetails} {UndInstrmtGrp} Side!
V MarketDataRequest: MDReqID! SubscriptionRequestType! MarketDepth! MDUpdateType AggregatedBook
    OpenCloseSettlFlag Scope MDImplicitDelete {MDReqGrp}! {InstrmtMDReqGrp}! {TrdgSesGrp} ApplQueueAction
    ApplQueueMax
W MarketDataSnapshotFullRefresh: MDReqID {Instrument}! {UndInstrmtGrp} {InstrmtLegGrp} FinancialStatus
    CorporateAction NetChgPrevDay {MDFullGrp}! ApplQueueDepth ApplQueueResolution
X MarketDataIncrementalRefresh: MDReqID {MDIncGrp}! ApplQueueDepth ApplQueueResolution
Y MarketDataRequestReject: MDReqID! MDReqRejReason {MDRjctGrp} Text EncodedTextLen EncodedText
d SecurityDefinition: SecurityReqID! SecurityResponseID! SecurityResponseType! {Instrument}
    {InstrumentExtension} {UndInstrmtGrp} Currency TradingSessionID TradingSessionSubID Text EncodedTextLen
    EncodedText {InstrmtLegGrp} ExpirationCycle RoundLot MinTradeVol
e SecurityStatusRequest: SecurityStatusReqID! {Instrument}! {InstrumentExtension} {UndInstrmtGrp}
    {InstrmtLegGrp} Currency SubscriptionRequestType! TradingSessionID TradingSessionSubID
f SecurityStatus: SecurityStatusReqID {Instrument}! {InstrumentExtension} {UndInstrmtGrp} {InstrmtLegGrp}
    Currency TradingSessionID TradingSessionSubID UnsolicitedIndicator SecurityTradingStatus FinancialStatus
    CorporateAction HaltReasonChar InViewOfCommon DueToRelated BuyVolume SellVolume HighPx LowPx LastPx TransactTime
    Adjustment Text EncodedTextLen EncodedText
j BusinessMessageReject: RefSeqNum RefMsgType! BusinessRejectRefID BusinessRejectReason! Text EncodedTextLen
    EncodedText
q OrderMassCancelRequest: ClOrdID! SecondaryClOrdID MassCancelRequestType! TradingSessionID TradingSessionSubID
    {Instrument} {UnderlyingInstrument} Side TransactTime! Text EncodedTextLen EncodedText
r OrderMassCancelReport: ClOrdID SecondaryClOrdID OrderID! SecondaryOrderID MassCancelRequestType!
    MassCancelResponse! MassCancelRejectReason TotalAffectedOrders {AffectedOrdGrp} TradingSessionID
    TradingSessionSubID {Instrument} {UnderlyingInstrument} Side TransactTime Text EncodedTextLen EncodedText
x SecurityListRequest: SecurityReqID! SecurityListRequestType! {Instrument} {InstrumentExtension}
    {FinancingDetails} {UndInstrmtGrp} {InstrmtLegGrp} Currency Text EncodedTextLen EncodedText TradingSessionID
    TradingSessionSubID SubscriptionRequestType
y SecurityList: SecurityReqID! SecurityResponseID! SecurityRequestResult! TotNoRelatedSym LastFragment
    {SecListGrp}
AF OrderMassStatusRequest: MassStatusReqID! MassStatusReqType! {Parties} Account AcctIDSource TradingSessionID
    TradingSessionSubID {Instrument} {UnderlyingInstrument} Side
AN RequestForPositions: PosReqID! PosReqType! MatchStatus SubscriptionRequestType {Parties}! Account!
    AcctIDSource AccountType! {Instrument} Currency {InstrmtLegGrp} {UndInstrmtGrp} ClearingBusinessDate!
    SettlSessID SettlSessSubID {TrdgSesGrp} TransactTime! ResponseTransportType ResponseDestination Text
    EncodedTextLen EncodedText
AO RequestForPositionsAck: PosMaintRptID! PosReqID TotalNumPosReports UnsolicitedIndicator PosReqResult!
    PosReqStatus! {Parties}! Account! AcctIDSource AccountType! {Instrument} Currency {InstrmtLegGrp}
    {UndInstrmtGrp} ResponseTransportType ResponseDestination Text EncodedTextLen EncodedText
AP PositionReport: PosMaintRptID! PosReqID PosReqType SubscriptionRequestType TotalNumPosReports
    UnsolicitedIndicator PosReqResult! ClearingBusinessDate! SettlSessID SettlSessSubID {Parties}! Account!
    AcctIDSource AccountType! {Instrument} Currency SettlPrice! SettlPriceType! PriorSettlPrice! {InstrmtLegGrp}
    {PosUndInstrmtGrp} {PositionQty}! {PositionAmountData}! RegistStatus DeliveryDate Text EncodedTextLen
    EncodedText
"""

BLOCKS = """
{Parties}: NoPartyIDs (PartyID PartyIDSource PartyRole {PtysSubGrp})
{ContraGrp}: NoContraBrokers (ContraBroker ContraTrader ContraTradeQty ContraTradeTime ContraLegRefID)
{Instrument}: Symbol SymbolSfx SecurityID SecurityIDSource {SecAltIDGrp} Product CFICode SecurityType
    SecuritySubType MaturityMonthYear MaturityDate PutOrCall CouponPaymentDate IssueDate RepoCollateralSecurityType
    RepurchaseTerm RepurchaseRate Factor CreditRating InstrRegistry CountryOfIssue StateOrProvinceOfIssue
    LocaleOfIssue RedemptionDate StrikePrice StrikeCurrency OptAttribute ContractMultiplier CouponRate
    SecurityExchange Issuer EncodedIssuerLen EncodedIssuer SecurityDesc EncodedSecurityDescLen EncodedSecurityDesc
    Pool ContractSettlMonth CPProgram CPRegType {EvntGrp} DatedDate InterestAccrualDate
{FinancingDetails}: AgreementDesc AgreementID AgreementDate AgreementCurrency TerminationType StartDate EndDate
    DeliveryType MarginRatio
{UndInstrmtGrp}: NoUnderlyings ({UnderlyingInstrument})
{Stipulations}: NoStipulations (StipulationType StipulationValue)
{OrderQtyData}: OrderQty CashOrderQty OrderPercent RoundingDirection RoundingModulus
{PegInstructions}: PegOffsetValue PegMoveType PegOffsetType PegLimitType PegRoundDirection PegScope
{DiscretionInstructions}: DiscretionInst DiscretionOffsetValue DiscretionMoveType DiscretionOffsetType
    DiscretionLimitType DiscretionRoundDirection DiscretionScope
{CommissionData}: Commission CommType CommCurrency FundRenewWaiv
{SpreadOrBenchmarkCurveData}: Spread BenchmarkCurveCurrency BenchmarkCurveName BenchmarkCurvePoint
    BenchmarkPrice BenchmarkPriceType BenchmarkSecurityID BenchmarkSecurityIDSource
{YieldData}: YieldType Yield YieldCalcDate YieldRedemptionDate YieldRedemptionPrice YieldRedemptionPriceType
{ContAmtGrp}: NoContAmts (ContAmtType ContAmtValue ContAmtCurr)
{InstrmtLegExecGrp}: NoLegs ({InstrumentLeg} LegQty LegSwapType {LegStipulations} LegPositionEffect
    LegCoveredOrUncovered {NestedParties} LegRefID LegPrice LegSettlType LegSettlDate LegLastPx)
{MiscFeesGrp}: NoMiscFees (MiscFeeAmt MiscFeeCurr MiscFeeType MiscFeeBasis)
{PreAllocGrp}: NoAllocs (AllocAccount AllocAcctIDSource AllocSettlCurrency IndividualAllocID {NestedParties}
    AllocQty)
{TrdgSesGrp}: NoTradingSessions (TradingSessionID TradingSessionSubID)
{MDReqGrp}: NoMDEntryTypes! (MDEntryType!)
{InstrmtMDReqGrp}: NoRelatedSym! ({Instrument}! {UndInstrmtGrp} {InstrmtLegGrp})
{InstrmtLegGrp}: NoLegs ({InstrumentLeg})
{MDFullGrp}: NoMDEntries! (MDEntryType! MDEntryPx Currency MDEntrySize MDEntryDate MDEntryTime TickDirection
    MDMkt TradingSessionID TradingSessionSubID QuoteCondition TradeCondition MDEntryOriginator LocationID DeskID
    OpenCloseSettlFlag TimeInForce ExpireDate ExpireTime MinQty ExecInst SellerDays OrderID QuoteEntryID
    MDEntryBuyer MDEntrySeller NumberOfOrders MDEntryPositionNo Scope PriceDelta Text EncodedTextLen EncodedText)
{MDIncGrp}: NoMDEntries! (MDUpdateAction! DeleteReason MDEntryType MDEntryID MDEntryRefID {Instrument}
    {UndInstrmtGrp} {InstrmtLegGrp} FinancialStatus CorporateAction MDEntryPx Currency MDEntrySize MDEntryDate
    MDEntryTime TickDirection MDMkt TradingSessionID TradingSessionSubID QuoteCondition TradeCondition
    MDEntryOriginator LocationID DeskID OpenCloseSettlFlag TimeInForce ExpireDate ExpireTime MinQty ExecInst
    SellerDays OrderID QuoteEntryID MDEntryBuyer MDEntrySeller NumberOfOrders MDEntryPositionNo Scope PriceDelta
    NetChgPrevDay Text EncodedTextLen EncodedText)
{MDRjctGrp}: NoAltMDSource (AltMDSourceID)
{InstrumentExtension}: DeliveryForm PctAtRisk {AttrbGrp}
{UnderlyingInstrument}: UnderlyingSymbol UnderlyingSymbolSfx UnderlyingSecurityID UnderlyingSecurityIDSource
    {UndSecAltIDGrp} UnderlyingProduct UnderlyingCFICode UnderlyingSecurityType UnderlyingSecuritySubType
    UnderlyingMaturityMonthYear UnderlyingMaturityDate UnderlyingPutOrCall UnderlyingCouponPaymentDate
    UnderlyingIssueDate UnderlyingRepoCollateralSecurityType UnderlyingRepurchaseTerm UnderlyingRepurchaseRate
    UnderlyingFactor UnderlyingCreditRating UnderlyingInstrRegistry UnderlyingCountryOfIssue
    UnderlyingStateOrProvinceOfIssue UnderlyingLocaleOfIssue UnderlyingRedemptionDate UnderlyingStrikePrice
    UnderlyingStrikeCurrency UnderlyingOptAttribute UnderlyingContractMultiplier UnderlyingCouponRate
    UnderlyingSecurityExchange UnderlyingIssuer EncodedUnderlyingIssuerLen EncodedUnderlyingIssuer
    UnderlyingSecurityDesc EncodedUnderlyingSecurityDescLen EncodedUnderlyingSecurityDesc UnderlyingCPProgram
    UnderlyingCPRegType UnderlyingCurrency UnderlyingQty UnderlyingPx UnderlyingDirtyPrice UnderlyingEndPrice
    UnderlyingStartValue UnderlyingCurrentValue UnderlyingEndValue {UnderlyingStipulations}
{AffectedOrdGrp}: NoAffectedOrders (OrigClOrdID AffectedOrderID AffectedSecondaryOrderID)
{SecListGrp}: NoRelatedSym ({Instrument} {InstrumentExtension} {FinancingDetails} {UndInstrmtGrp} Currency
    {Stipulations} {InstrmtLegSecListGrp} {SpreadOrBenchmarkCurveData} {YieldData} RoundLot MinTradeVol
    TradingSessionID TradingSessionSubID ExpirationCycle Text EncodedTextLen EncodedText)
{PosUndInstrmtGrp}: NoUnderlyings ({UnderlyingInstrument} UnderlyingSettlPrice! UnderlyingSettlPriceType!)
{PositionQty}: NoPositions (PosType LongQty ShortQty PosQtyStatus {NestedParties})
{PositionAmountData}: NoPosAmt (PosAmtType PosAmt)
{PtysSubGrp}: NoPartySubIDs (PartySubID PartySubIDType)
{SecAltIDGrp}: NoSecurityAltID (SecurityAltID SecurityAltIDSource)
{EvntGrp}: NoEvents (EventType EventDate EventPx EventText)
{InstrumentLeg}: LegSymbol LegSymbolSfx LegSecurityID LegSecurityIDSource {LegSecAltIDGrp} LegProduct LegCFICode
    LegSecurityType LegSecuritySubType LegMaturityMonthYear LegMaturityDate LegCouponPaymentDate LegIssueDate
    LegRepoCollateralSecurityType LegRepurchaseTerm LegRepurchaseRate LegFactor LegCreditRating LegInstrRegistry
    LegCountryOfIssue LegStateOrProvinceOfIssue LegLocaleOfIssue LegRedemptionDate LegStrikePrice LegStrikeCurrency
    LegOptAttribute LegContractMultiplier LegCouponRate LegSecurityExchange LegIssuer EncodedLegIssuerLen
    EncodedLegIssuer LegSecurityDesc EncodedLegSecurityDescLen EncodedLegSecurityDesc LegRatioQty LegSide
    LegCurrency LegPool LegDatedDate LegContractSettlMonth LegInterestAccrualDate
{LegStipulations}: NoLegStipulations (LegStipulationType LegStipulationValue)
{NestedParties}: NoNestedPartyIDs (NestedPartyID NestedPartyIDSource NestedPartyRole {NstdPtysSubGrp})
{AttrbGrp}: NoInstrAttrib (InstrAttribType InstrAttribValue)
{UndSecAltIDGrp}: NoUnderlyingSecurityAltID (UnderlyingSecurityAltID UnderlyingSecurityAltIDSource)
{UnderlyingStipulations}: NoUnderlyingStips (UnderlyingStipType UnderlyingStipValue)
{InstrmtLegSecListGrp}: NoLegs ({InstrumentLeg} LegSwapType LegSettlType {LegStipulations}
    {LegBenchmarkCurveData})
{LegSecAltIDGrp}: NoLegSecurityAltID (LegSecurityAltID LegSecurityAltIDSource)
{NstdPtysSubGrp}: NoNestedPartySubIDs (NestedPartySubID NestedPartySubIDType)
{LegBenchmarkCurveData}: LegBenchmarkCurveCurrency LegBenchmarkCurveName LegBenchmarkCurvePoint
    LegBenchmarkPrice LegBenchmarkPriceType
"""

MESSAGE_NAMES = """
0:Heartbeat 1:TestRequest 2:ResendRequest 3:Reject 4:SequenceReset 5:Logout 6:IOI 7:Advertisement
8:ExecutionReport 9:OrderCancelReject A:Logon B:News C:Email D:NewOrderSingle E:NewOrderList
F:OrderCancelRequest G:OrderCancelReplaceRequest H:OrderStatusRequest J:AllocationInstruction
K:ListCancelRequest L:ListExecute M:ListStatusRequest N:ListStatus P:AllocationInstructionAck Q:DontKnowTrade
R:QuoteRequest S:Quote T:SettlementInstructions V:MarketDataRequest W:MarketDataSnapshotFullRefresh
X:MarketDataIncrementalRefresh Y:MarketDataRequestReject Z:QuoteCancel a:QuoteStatusRequest
b:MassQuoteAcknowledgement c:SecurityDefinitionRequest d:SecurityDefinition e:SecurityStatusRequest
f:SecurityStatus g:TradingSessionStatusRequest h:TradingSessionStatus i:MassQuote j:BusinessMessageReject
k:BidRequest l:BidResponse m:ListStrikePrice n:XMLnonFIX o:RegistrationInstructions
p:RegistrationInstructionsResponse q:OrderMassCancelRequest r:OrderMassCancelReport s:NewOrderCross
t:CrossOrderCancelReplaceRequest u:CrossOrderCancelRequest v:SecurityTypeRequest w:SecurityTypes
x:SecurityListRequest y:SecurityList z:DerivativeSecurityListRequest AA:DerivativeSecurityList
AB:NewOrderMultileg AC:MultilegOrderCancelReplace AD:TradeCaptureReportRequest AE:TradeCaptureReport
AF:OrderMassStatusRequest AG:QuoteRequestReject AH:RFQRequest AI:QuoteStatusReport AJ:QuoteResponse
AK:Confirmation AL:PositionMaintenanceRequest AM:PositionMaintenanceReport AN:RequestForPositions
AO:RequestForPositionsAck AP:PositionReport AQ:TradeCaptureReportRequestAck AR:TradeCaptureReportAck
AS:AllocationReport AT:AllocationReportAck AU:ConfirmationAck AV:SettlementInstructionRequest
AW:AssignmentReport AX:CollateralRequest AY:CollateralAssignment AZ:CollateralResponse BA:CollateralReport
BB:CollateralInquiry BC:NetworkCounterpartySystemStatusRequest BD:NetworkCounterpartySystemStatusResponse
BE:UserRequest BF:UserResponse BG:CollateralInquiryAck BH:ConfirmationRequest
"""
